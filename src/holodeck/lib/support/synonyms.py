"""What other tools call the keys, metrics and commands of holodeck, so that messages suggest by
meaning: promptfoo, DeepEval, pydantic-evals, Google ADK, LangSmith, Ragas, Inspect and OpenAI.
"""

import re
from collections.abc import Collection, Mapping, Sequence

from holodeck.lib.support.text import did_you_mean

_BEFORE_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BETWEEN_WORDS = re.compile(r"[^a-z0-9]+")
Synonyms = Mapping[str, str]
"""Word of holodeck → words of other tools, in lower case with underscores, separated by blanks."""

KEYS: Sequence[tuple[frozenset[str], Synonyms]] = (
    (
        frozenset({"name", "test_cases", "instructions"}),
        {
            "test_cases": "tests cases scenarios eval_cases examples samples goldens",
            "test_cases_file": "dataset dataset_file tests_file cases_file",
            "evaluations": "metrics evaluators assert asserts assertions default_test scorers",
            "instructions": "prompt prompts system_prompt system system_message",
            "model": "llm",
            "backend": "agent provider providers target targets url endpoint adapter entrypoint",
            "tools": "functions plugins",
            "execution": "evaluate_options settings run options",
        },
    ),
    (
        frozenset({"expected_tools", "ground_truth", "evaluations"}),
        {
            "input": "prompt user question query inputs user_input user_message user_content",
            "ground_truth": "expected expected_output expected_outputs expected_answer ideal"
            " expected_response expected_outcome expected_result reference reference_answer target"
            " reference_output reference_outputs answer correct_answer final_response gold",
            "expected_tools": "tools tool_calls expected_tool_calls expected_tool_use tool_uses"
            " tools_called expected_trajectory trajectory",
            "evaluations": "assert asserts assertions evaluators metrics checks",
            "criteria": "rubric rubrics requirements",
            "retrieval_context": "retrieved_context retrieved_contexts contexts documents passages",
            "parameters": "vars variables",
            "history": "messages chat_history",
            "turns": "conversation",
            "situation": "scenario",
            "tags": "labels",
            "description": "comment comments notes",
            "id": "eval_id case_id test_id",
            "repeat": "repetitions num_runs runs trials epochs",
            "timeout": "timeout_seconds timeout_s",
        },
    ),
    (
        frozenset({"suite", "scenarios", "test_cases"}),
        {"test_cases": "tests cases examples samples"},
    ),
    (
        frozenset({"metrics", "model"}),
        {"metrics": "evaluators assert asserts assertions", "model": "judge llm provider"},
    ),
    (
        frozenset({"name", "args", "result"}),
        {
            "args": "arguments parameters params input tool_input input_parameters",
            "name": "tool tool_name function",
            "result": "output response tool_output",
            "count": "times calls",
        },
    ),
    (
        frozenset({"path", "name", "arguments"}),
        {
            "name": "tool tool_name function",
            "arguments": "args parameters params input tool_input",
            "result": "output response tool_output",
            "error": "is_error problem",
            "call_id": "id tool_call_id",
        },
    ),
    (
        frozenset({"text", "source"}),
        {"text": "content body passage", "source": "file url document id title"},
    ),
    (
        frozenset({"text", "tool_calls", "retrieval_context"}),
        {
            "text": "response answer output reply content message",
            "tool_calls": "calls actions tools",
            "retrieval_context": "passages contexts documents chunks context sources",
            "prompt_tokens": "input_tokens",
            "completion_tokens": "output_tokens",
        },
    ),
    (
        frozenset({"user", "agent", "proceed"}),
        {
            "user": "input human prompt question",
            "agent": "assistant ai bot",
            "check": "expect assert checks",
            "judge": "criteria evaluate",
        },
    ),
    (
        frozenset({"role", "content"}),
        {"role": "speaker author sender from", "content": "text message value"},
    ),
    (
        frozenset({"metric", "threshold"}),
        {
            "metric": "assertion scorer evaluator",
            "value": "expected expected_value text substring",
            "pattern": "regex regexp value expression",
            "schema": "json_schema value expected_schema",
            "max_ms": "threshold_ms max_latency_ms timeout_ms milliseconds",
            "threshold": "min_score pass_threshold minimum",
            "model": "judge llm provider",
        },
    ),
    (
        frozenset({"type", "criteria", "threshold"}),
        {
            "criteria": "rubric assertion question questions value",
            "evaluation_steps": "steps",
            "evaluation_params": "inputs params",
            "model": "judge llm provider",
            "threshold": "min_score pass_threshold minimum",
        },
    ),
    (
        frozenset({"input", "output"}),
        {
            "input": "prompt prompt_tokens input_tokens input_mtok",
            "output": "completion completion_tokens output_tokens output_mtok",
        },
    ),
    (
        frozenset({"url", "request", "answer"}),
        {"url": "endpoint uri", "request": "body payload json", "answer": "response"},
    ),
    (
        frozenset({"endpoint", "api_key"}),
        {
            "endpoint": "base_url api_base azure_endpoint url host api_url openai_api_base",
            "name": "model model_name model_id ai_model_id engine deployment deployment_name"
            " azure_deployment azure_deployment_name deployment_id",
            "max_tokens": "max_completion_tokens max_output_tokens max_new_tokens num_predict",
            "api_key": "key token api_token auth_token openai_api_key azure_api_key",
            "api_version": "azure_api_version openai_api_version",
            "provider": "api_type vendor type custom_llm_provider",
        },
    ),
    (
        frozenset({"llm_timeout", "retries"}),
        {
            "parallel_test_cases": "concurrency max_concurrency",
            "repeat": "repetitions num_runs runs trials epochs",
            "max_cost": "budget cost_limit",
        },
    ),
    (
        frozenset({"persona", "situation"}),
        {"situation": "goal task scenario", "opening": "starting_prompt first_message"},
    ),
)
"""For each kind of mapping, some keys by which it is recognized, and its keys in other tools."""

METRICS: Synonyms = {
    "exact_match": "equals equal equals_expected exact",
    "contains": "icontains contains_all contains_any icontains_all icontains_any includes",
    "not_contains": "not_icontains excludes",
    "regex": "pattern pattern_match starts_with matches",
    "json_schema": "is_json contains_json valid_json json",
    "semantic_similarity": "similar embedding_distance embedding_similarity cosine_similarity",
    "latency": "max_duration completion_time response_time",
    "bleu": "bleu_score gleu",
    "rouge": "rouge_n rouge_l rouge_score response_match_score",
    "meteor": "meteor_score",
    "f1_score": "f1 token_f1",
    "judge": "llm_rubric llm_judge llm_as_judge model_graded_closedqa model_graded_qa",
    "geval": "g_eval",
    "answer_relevancy": "answer_relevance response_relevancy",
    "faithfulness": "context_faithfulness",
    "contextual_recall": "context_recall",
    "contextual_precision": "context_precision",
    "contextual_relevancy": "context_relevance context_relevancy",
}
"""Names and types of metrics."""

MATCHERS: Synonyms = {
    "equals": "exact eq const",
    "regex": "pattern regexp matches contains includes starts_with ends_with one_of in any",
    "number": "min max minimum maximum approx gt gte lt lte between range",
    "fuzzy": "icontains ignore_case similar",
}
"""Conditions for arguments of tool calls."""

COMMANDS: Synonyms = {
    "test": "run eval evaluate exec execute",
    "test --list": "list ls collect",
    "test --debug": "chat repl talk",
    "test --watch": "watch",
    "validate": "check lint",
    "init": "new create",
    "runs": "history logs results show",
    "view": "ui dashboard",
    "compare": "diff",
    "bless": "accept approve baseline",
    "score": "grade regrade rescore",
    "import": "convert migrate",
}
"""Commands, some with an option."""


def did_you_mean_key(word: str, known: Collection[str], otherwise: str = "") -> str:
    """Return `; did you mean 'x'?` with the known key that is meant, else the nearest one."""
    meant = meant_key(word, known)
    return did_you_mean(word, known, otherwise) if meant is None else f"; did you mean {meant!r}?"


def meant_key(word: str, known: Collection[str]) -> str | None:
    """Return the known key that a key of another tool means; None if it means none of them."""
    for marks, synonyms in KEYS:
        if marks <= set(known):
            meant = meant_word(word, synonyms, known)
            if meant is not None:
                return meant
    return None


def meant_word(word: str, synonyms: Synonyms, known: Collection[str] | None = None) -> str | None:
    """Return the word of holodeck, among the known ones, that a word of another tool means."""
    folded = _BETWEEN_WORDS.sub("_", _BEFORE_CAPITAL.sub("_", word).lower()).strip("_")
    for ours, others in synonyms.items():
        if folded in (ours, *others.split()) and (known is None or ours in known):
            return ours
    return None
