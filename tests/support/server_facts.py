"""What servers of models tell of themselves, in the shapes that each has."""

from typing import Any

MODEL = "qwen2.5-coder:1.5b"
LLAMA_CPP: dict[str, Any] = {
    "/v1/models": {
        "models": [{"name": "qwen.gguf", "model": "qwen.gguf", "capabilities": ["completion"]}],
        "object": "list",
        "data": [
            {
                "id": "qwen.gguf",
                "object": "model",
                "owned_by": "llamacpp",
                "meta": {"n_ctx": 8192, "n_ctx_train": 32768, "n_params": 1543714304},
            }
        ],
    },
    "/props": {
        "default_generation_settings": {"n_ctx": 4096, "params": {"temperature": 0.8}},
        "total_slots": 2,
        "modalities": {"vision": False, "audio": False},
    },
    "/api/show": {"template": "x", "capabilities": ["completion"], "details": {}},
}
OLLAMA: dict[str, Any] = {
    "/v1/models": {"object": "list", "data": [{"id": MODEL, "owned_by": "library"}]},
    "/api/ps": {"models": [{"name": MODEL, "model": MODEL, "context_length": 4096}]},
    "/api/show": {
        "parameters": 'stop    "<|im_end|>"\ntemperature   0.7\nnum_ctx             16384',
        "details": {"family": "qwen2", "parameter_size": "1.5B", "quantization_level": "Q4_K_M"},
        "model_info": {"qwen2.context_length": 32768},
        "capabilities": ["completion", "tools", "vision"],
    },
}
LM_STUDIO: dict[str, Any] = {
    "/v1/models": {"object": "list", "data": [{"id": MODEL}, {"id": "other"}]},
    "/api/v0/models": {
        "object": "list",
        "data": [
            {"id": "other", "type": "llm", "state": "loaded", "loaded_context_length": 1},
            {
                "id": MODEL,
                "type": "vlm",
                "state": "loaded",
                "max_context_length": 32768,
                "loaded_context_length": 4096,
            },
        ],
    },
    # It answers any other address with 200.
    **dict.fromkeys(("/props", "/api/ps", "/info"), {"error": "Unexpected endpoint or method."}),
}
VLLM: dict[str, Any] = {
    "/v1/models": {"data": [{"id": MODEL, "owned_by": "vllm", "max_model_len": 8192}]}
}
SGLANG: dict[str, Any] = {
    "/v1/models": {"data": [{"id": MODEL, "owned_by": "sglang", "max_model_len": 32768}]},
    "/get_server_info": {"context_length": None, "max_req_input_len": 8186, "version": "1"},
}
TGI: dict[str, Any] = {
    "/info": {"model_id": "a/b", "max_input_tokens": 4095, "max_total_tokens": 4096}
}
OPENROUTER: dict[str, Any] = {
    "/v1/models": {
        "data": [
            {"id": "x/y", "context_length": 1, "architecture": {"input_modalities": ["text"]}},
            {
                "id": MODEL,
                "context_length": 131072,
                "architecture": {"input_modalities": ["text", "image"]},
            },
        ]
    }
}
