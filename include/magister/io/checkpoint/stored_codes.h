// Weights that a file stores as integer codes of 4 or 8 bits. All quantisation methods share one layout here, so that
// kernels can multiply by the codes and nothing is rounded a second time.
// Shapes: N outputs (rows), K inputs (columns), G groups of inputs that share a scale.
#pragma once

#include <cstdint>

namespace magister {

// weight = (code - 2^(bits-1)) * scale, or (code - zero) * scale, both exact in f32, or code * scale + minimum, which
// is rounded once. In each case it is the f32 that TensorFile::read gives. Codes count from 0.
struct CodeFormat {
  enum class Scale { kBF16, kF16 };
  enum class Offset { kMiddle, kZero, kMinimum };

  std::int64_t bits = 4;   // 4 or 8
  std::int64_t group = 0;  // inputs per scale, counted from column 0; 0: one scale per output
  Scale scale = Scale::kBF16;
  Offset offset = Offset::kMiddle;

  bool operator==(const CodeFormat&) const = default;
};

// Buffers for a window of N rows and K columns; G counts the groups that the columns touch. Strides in elements.
struct CodeWindow {
  std::uint8_t* codes = nullptr;  // [N, K]
  std::int64_t codes_stride = 0;
  std::uint16_t* scales = nullptr;   // [N, G], bits of bf16 or f16
  std::uint16_t* offsets = nullptr;  // [N, G], f16: minima, or zeros, which are integers up to 255; unused for kMiddle
  std::int64_t groups_stride = 0;
};

}  // namespace magister
