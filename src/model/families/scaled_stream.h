// A multiplier m of block outputs needs no code of its own. With h = m h', h + m f(norm(h)) is m (h' + f(norm(h))). An
// RMS norm does not depend on scale: norm(h) with eps is norm(h') with eps / m^2. So the residual stream is stored
// divided by m, beginning with the embeddings.
#pragma once

#include "magister/model/model_config.h"

namespace magister {

inline void divide_stream(ModelConfig& config, double multiplier) {
  config.embedding_multiplier /= multiplier;
  config.rms_norm_eps /= multiplier * multiplier;
}

}  // namespace magister
