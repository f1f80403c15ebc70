// A model's path as users write it: a file, a folder, or a name of the Hugging Face hub ("meta-llama/Llama-3.2-1B") that its cache
// on this machine holds. Nothing is ever downloaded.
#pragma once

#include <string>

namespace magister {

// The path itself where something stands there, else the snapshot of that name in the cache ($HF_HUB_CACHE, $HF_HOME/hub or
// ~/.cache/huggingface/hub; its revision "main"), else the path as it is.
std::string find_model(const std::string& path);

// How to bring the model of this name, for the message that nothing stands at the path: "; download it with `hf download
// meta-llama/Llama-3.2-1B`", also for short names of other programs ("gpt2"); empty where the path is no such name.
std::string download_hint(const std::string& path);

// The parts of these two, for data sets.
// Whether it is ORG/NAME of letters, digits, '.', '_' and '-', as the hub allows, and no path that begins at a folder.
bool is_hub_name(const std::string& path);
// The folder of revision "main" of a name in the cache, or nothing. kind: "models" or "datasets".
std::string hub_snapshot(const std::string& kind, const std::string& name);
// "; download it with `hf download ARGUMENTS`".
std::string hub_hint(const std::string& arguments);

}  // namespace magister
