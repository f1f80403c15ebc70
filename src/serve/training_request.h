// Requests of services that train with PyTorch's DataParallel, as experiments: their keys, and what each is here.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace magister {

// The configuration of GPUs with the usual values of such services; gpu_ids [] means all.
nlohmann::ordered_json usual_gpu_config();
// The usual keys of a training; null: the experiment's own default.
nlohmann::ordered_json usual_training_config();

// Replaces values of `config` by those of `given`. Returns why not, with the key's name; `config` is then unchanged.
std::string change_config(nlohmann::ordered_json& config, const nlohmann::ordered_json& given);

// What the keys of a configuration of GPUs mean here, where that is not what they say: one line for each.
std::vector<std::string> notes_of(const nlohmann::ordered_json& gpu_config, std::size_t gpus_here);

struct TrainingRequest {
  std::string fault;                  // empty: the rest holds
  nlohmann::ordered_json experiment;  // without dataset.path if texts are given
  std::string data;                   // the texts as JSON lines; empty: the request names a file
  std::vector<std::string> notes;
};

// body: {"model_name", "dataset_config": {"texts" or "path", "max_length"}, "training_config", "user_id",
// "training_type"}. ranks: that the launcher starts; root: where a folder of the model's name may be.
TrainingRequest read_training_request(const nlohmann::ordered_json& body, const nlohmann::ordered_json& gpu_config,
                                      const nlohmann::ordered_json& training_config, std::size_t gpus_here, int ranks,
                                      const std::string& root);

}  // namespace magister
