"""Third-party engines (llama.cpp, vLLM on CPUs) as baselines, each in its own environment and process."""
