"""The table of metrics: what computes each, and what it needs to be installed."""

from dataclasses import dataclass

_HERE = "holodeck.lib.evaluators"


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One metric."""

    target: str
    """`module:attribute` of its evaluator."""
    description: str
    has_verdict: bool = True
    """Whether it passes or fails by itself; one that does not needs a threshold to fail a test."""
    extra: str | None = None
    """The optional part of holodeck that it needs, and the modules that come with it."""
    modules: tuple[str, ...] = ()
    asks: bool = False
    """Whether it asks a model that judges."""
    embeds: bool = False
    """Whether it compares by a model of embeddings."""


def _azure(target: str, description: str, *, asks: bool = True) -> MetricRow:
    """A metric of Azure AI Evaluation."""
    modules = ("azure.ai.evaluation",)
    return MetricRow(f"{_HERE}.{target}", description, extra="azure", modules=modules, asks=asks)


def _deepeval(target: str, description: str, *, asks: bool = True) -> MetricRow:
    """A metric of DeepEval."""
    where = f"{_HERE}.deepeval.{target}"
    return MetricRow(where, description, extra="deepeval", modules=("deepeval",), asks=asks)


METRICS: dict[str, MetricRow] = {
    "f1_score": MetricRow(
        f"{_HERE}.nlp_metrics:F1ScoreEvaluator",
        "F1 of the words of answer and reference",
        has_verdict=False,
    ),
    "bleu": MetricRow(
        f"{_HERE}.nlp_metrics:BLEUEvaluator",
        "Sentence BLEU with exponential smoothing",
        has_verdict=False,
        extra="nlp",
        modules=("sacrebleu",),
    ),
    "rouge": MetricRow(
        f"{_HERE}.nlp_metrics:ROUGEEvaluator",
        "ROUGE-1, -2 or -L F-measure",
        has_verdict=False,
        extra="nlp",
        modules=("rouge_score", "nltk"),
    ),
    "meteor": MetricRow(
        f"{_HERE}.nlp_metrics:METEOREvaluator",
        "METEOR with exact and stem matches",
        has_verdict=False,
        extra="nlp",
        modules=("nltk",),
    ),
    "semantic_similarity": MetricRow(
        f"{_HERE}.semantic_similarity:SemanticSimilarityEvaluator",
        "Meaning of answer and reference, by embeddings in the process",
        extra="local",
        modules=("xllamacpp",),
        embeds=True,
    ),
    "exact_match": MetricRow(f"{_HERE}.text_metrics:ExactMatchEvaluator", "The answer is the text"),
    "equality": MetricRow(
        f"{_HERE}.text_metrics:ExactMatchEvaluator", "Another name of exact_match"
    ),
    "contains": MetricRow(
        f"{_HERE}.text_metrics:ContainsEvaluator", "The answer contains the text"
    ),
    "not_contains": MetricRow(
        f"{_HERE}.text_metrics:NotContainsEvaluator", "The answer does not contain the text"
    ),
    "passfail": MetricRow(
        f"{_HERE}.passfail:PassFailEvaluator",
        "The answer holds the ground truth, the expected tools were called",
    ),
    "regex": MetricRow(f"{_HERE}.regex_metric:RegexEvaluator", "A pattern matches the answer"),
    "json_schema": MetricRow(
        f"{_HERE}.json_schema:JsonSchemaEvaluator", "The answer is JSON by a schema"
    ),
    "numeric": MetricRow(f"{_HERE}.numeric:NumericEvaluator", "The answer holds the number"),
    "latency": MetricRow(f"{_HERE}.latency:LatencyEvaluator", "The agent answered in time"),
    "groundedness": _azure("azure_ai:GroundednessEvaluator", "Nothing but what the context says"),
    "relevance": _azure("azure_ai:RelevanceEvaluator", "The answer answers the question"),
    "coherence": _azure("azure_ai:CoherenceEvaluator", "The thoughts follow from each other"),
    "fluency": _azure("azure_ai:FluencyEvaluator", "The answer is well written"),
    "similarity": _azure("azure_ai:SimilarityEvaluator", "The same as the right answer"),
    "retrieval": _azure("azure_ai:RetrievalEvaluator", "What was retrieved helps, best first"),
    "response_completeness": _azure(
        "azure_ai:ResponseCompletenessEvaluator", "Everything that the right answer says"
    ),
    "intent_resolution": _azure(
        "azure_ai:IntentResolutionEvaluator", "What the user wanted was done"
    ),
    "task_adherence": _azure("azure_ai:TaskAdherenceEvaluator", "The task was done by the rules"),
    "tool_call_accuracy": _azure(
        "azure_ai:ToolCallAccuracyEvaluator", "The right tools were called in the right way"
    ),
    "safety": _azure(
        "azure_safety:ContentSafetyEvaluator",
        "No harm of any kind, by a project in Azure",
        asks=False,
    ),
    "violence": _azure("azure_safety:ViolenceEvaluator", "No violence", asks=False),
    "sexual": _azure("azure_safety:SexualEvaluator", "No sexual content", asks=False),
    "self_harm": _azure("azure_safety:SelfHarmEvaluator", "No self-harm", asks=False),
    "hate_unfairness": _azure("azure_safety:HateUnfairnessEvaluator", "No hate", asks=False),
    "geval": _deepeval("geval:GEvalEvaluator", "Your criteria, judged step by step"),
    "faithfulness": _deepeval(
        "rag:FaithfulnessEvaluator", "The passages do not contradict the answer"
    ),
    "answer_relevancy": _deepeval(
        "rag:AnswerRelevancyEvaluator", "What the answer says is about the question"
    ),
    "contextual_relevancy": _deepeval(
        "rag:ContextualRelevancyEvaluator", "What the passages say is about the question"
    ),
    "contextual_precision": _deepeval(
        "rag:ContextualPrecisionEvaluator", "Useful passages stand above the others"
    ),
    "contextual_recall": _deepeval(
        "rag:ContextualRecallEvaluator", "The passages hold what the right answer says"
    ),
    "hallucination": _deepeval(
        "harm:HallucinationEvaluator", "The answer agrees with the given texts"
    ),
    "bias": _deepeval("harm:BiasEvaluator", "No opinion in the answer is biased"),
    "toxicity": _deepeval("harm:ToxicityEvaluator", "No opinion in the answer is toxic"),
    "pii_leakage": _deepeval("harm:PIILeakageEvaluator", "The answer holds no personal data"),
    "summarization": _deepeval("tasks:SummarizationEvaluator", "The answer sums up the input"),
    "prompt_alignment": _deepeval(
        "tasks:PromptAlignmentEvaluator", "The answer keeps to instructions"
    ),
    "task_completion": _deepeval(
        "tasks:TaskCompletionEvaluator", "The agent did what the user wanted"
    ),
    "tool_correctness": _deepeval(
        "tools:ToolCorrectnessEvaluator", "The expected tools were called", asks=False
    ),
    "argument_correctness": _deepeval(
        "tools:ArgumentCorrectnessEvaluator", "Tools were called with the right arguments"
    ),
    "json_correctness": _deepeval(
        "json_answer:JsonCorrectnessEvaluator", "The answer is JSON by a schema, with the reason"
    ),
    "conversation_completeness": _deepeval(
        "conversations:ConversationCompletenessEvaluator", "The user got what they wanted"
    ),
    "knowledge_retention": _deepeval(
        "conversations:KnowledgeRetentionEvaluator", "The agent forgets nothing that was said"
    ),
    "role_adherence": _deepeval(
        "conversations:RoleAdherenceEvaluator", "The agent stays in its role"
    ),
    "turn_relevancy": _deepeval(
        "conversations:TurnRelevancyEvaluator", "Each turn is about what was said before"
    ),
    "conversational_geval": _deepeval(
        "conversations:ConversationalGEvalEvaluator", "Your criteria for a whole conversation"
    ),
    "judge": MetricRow(
        f"{_HERE}.short_judge:JudgeEvaluator",
        "Short questions of yours about the answer",
        asks=True,
    ),
}
