// OuterModel: a model of images and texts whose text decoder is one of the families here. Its config.json has the
// decoder's in text_config, and its tensors stand beside those of the image encoder, under a prefix.
#pragma once

#include <string>

#include "magister/io/checkpoint/tensor_file.h"
#include "magister/model/model_config.h"

namespace magister {

struct OuterModel {
  const char* model_type;    // of config.json
  const char* architecture;  // its class
  const char* text_type;     // model_type of a text_config without one
  bool any_text = false;     // text_config may be of another family
  bool is_flat = false;      // older files have the decoder's keys outside, without a text_config
  // The head is the embeddings: without tie_word_embeddings outside; and where text_config alone says so.
  bool tied_by_default = false, tied_by_text = false;
  // Ids from here on have embeddings in the encoders' tables, unless their configs name another id; 0: none have.
  std::int64_t first_other_id = 0;
  const char* published_architecture = "";  // the class in files whose authors brought one of their own
};

// null: model_type is not that of such a model.
const OuterModel* outer_model(const std::string& model_type);
// Gives the decoder's tensors the names that the file has, and adds those of other parts to the names that are not
// read, with one line in the log. file: null if there is none; the names are then those that transformers 5 writes.
void use_outer_names(ModelDescription& description, const OuterModel& outer, const TensorFile* file,
                     const std::string& path);
// The decoder's head in such a file; null: it has none.
const TensorInfo* outer_head(const TensorFile& file);

}  // namespace magister
