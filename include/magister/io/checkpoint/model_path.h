// A model's path as users write it: a file, a folder, or a name of the Hugging Face Hub ("meta-llama/Llama-3.2-1B")
// that is in its cache on this machine. Nothing is ever downloaded.
#pragma once

#include <string>

namespace magister {

// The path itself if it exists, else the snapshot of that name in the cache ($HF_HUB_CACHE, $HF_HOME/hub or
// ~/.cache/huggingface/hub; its revision "main"), else the path unchanged.
std::string find_model(const std::string& path);

// How to download the model of this name, for the message that the path does not exist: "; ... download it with `hf
// download meta-llama/Llama-3.2-1B`". It also knows short names of other programs ("gpt2"). Empty where the path is no
// such name.
std::string download_hint(const std::string& path);

// True for ORG/NAME of letters, digits, '.', '_' and '-', as the Hub allows, which does not begin with '.' or '~'.
bool is_hub_name(const std::string& path);
// The folder of revision "main" of a name in the cache; empty if there is none. kind: "models" or "datasets".
std::string hub_snapshot(const std::string& kind, const std::string& name);
// "; it looks like a name of the Hugging Face hub, ...: download it with `hf download ARGUMENTS`".
std::string hub_hint(const std::string& arguments);

}  // namespace magister
