//! Keys of config.json that change nothing in the forward pass, and what to say about the others.

/// Read knowingly and ignored: they are about training, serving, transformers' bookkeeping or draft layers.
const HARMLESS: &[&str] = &[
    "_name_or_path",
    "_attn_implementation",
    "attention_dropout",
    "auto_map",
    "aux_loss_alpha",
    "chunk_size_feed_forward",
    "dtype",
    "ep_size",
    "generation_config",
    "id2label",
    "initializer_range",
    "is_encoder_decoder",
    "label2id",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "pad_token_id",
    "pretraining_tp",
    "problem_type",
    "return_dict",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "seq_aux",
    "task_specific_params",
    "tokenizer_class",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "use_cache",
];

/// Draft layers of Flash-0731 (`dspark_block_size` and so on): the drafts propose tokens, the model's own pass is the
/// same with and without them.
const HARMLESS_PREFIX: &[&str] = &["dspark_"];

/// Names of the inference code's arguments, and what config.json calls them (spec 1).
const INFERENCE_NAMES: &[(&str, &str)] = &[
    ("dim", "hidden_size"),
    ("n_layers", "num_hidden_layers"),
    ("n_heads", "num_attention_heads"),
    ("rope_head_dim", "qk_rope_head_dim"),
    ("window_size", "sliding_window"),
    ("n_activated_experts", "num_experts_per_tok"),
    ("moe_inter_dim", "moe_intermediate_size"),
    ("n_hash_layers", "num_hash_layers"),
    ("score_func", "scoring_func"),
    ("route_scale", "routed_scaling_factor"),
    ("norm_eps", "rms_norm_eps"),
    ("original_seq_len", "rope_scaling.original_max_position_embeddings"),
    ("rope_factor", "rope_scaling.factor"),
    ("beta_fast", "rope_scaling.beta_fast"),
    ("beta_slow", "rope_scaling.beta_slow"),
    ("max_seq_len", "max_position_embeddings"),
    ("n_mtp_layers", "num_nextn_predict_layers"),
    ("scale_fmt", "quantization_config.scale_fmt"),
    ("n_hash_layer", "num_hash_layers"),
];

/// True for a key that is read and ignored knowingly.
pub(super) fn harmless(key: &str) -> bool {
    HARMLESS.contains(&key) || HARMLESS_PREFIX.iter().any(|p| key.starts_with(p))
}

/// What to try about an unknown key.
pub(super) fn advice(key: &str) -> String {
    if let Some((_, field)) = INFERENCE_NAMES.iter().find(|(n, _)| *n == key) {
        return format!("that is the inference code's name: config.json calls it {field}");
    }
    "a field that nobody reads may change the model: remove it if it doesn't".to_string()
}
