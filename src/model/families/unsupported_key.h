// A key of a model's config. It changes results unless it is absent, null, false, empty or equal to `neutral`.
#pragma once

namespace magister {

struct UnsupportedKey {
  const char* key;
  double neutral;
  const char* what;
};

}  // namespace magister
