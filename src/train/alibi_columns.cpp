// The formulas are those of alibi_terms() (model/plain_attention.cpp).
#include "train/alibi_columns.h"

#include <ATen/ATen.h>

#include "magister/device/upload.h"

namespace magister {

at::Tensor alibi_columns(const LayerShape& shape, const std::vector<std::int64_t>& cu_seqlens, at::Device device) {
  std::vector<at::Tensor> positions;
  for (std::size_t s = 0; s + 1 < cu_seqlens.size(); ++s)
    positions.push_back(at::arange(cu_seqlens[s + 1] - cu_seqlens[s], at::kFloat));
  const at::Tensor position_T1 = upload(at::cat(positions, 0).unsqueeze(1), device),
                   slope_H = upload(at::tensor(shape.alibi_slopes, at::kFloat), device);
  const auto rounded = [](const at::Tensor& x) { return x.to(at::kBFloat16).to(at::kFloat); };
  // Attention multiplies scores by its scale, which ALiBi in bf16 includes.
  at::Tensor rest_TH = shape.alibi_in_bf16 ? rounded(rounded(slope_H) * rounded(position_T1))
                                           : slope_H * position_T1 / static_cast<double>(shape.attention_scale);
  at::Tensor columns_THC = at::zeros({rest_TH.size(0), rest_TH.size(1), kAlibiColumns}, rest_TH.options());
  constexpr std::int64_t kParts = 3;  // of 8 bits each; f32 has 24
  for (std::int64_t part = 0; part < kParts; ++part) {
    const at::Tensor part_TH = rounded(rest_TH);
    columns_THC.select(2, part).copy_(part_TH);
    rest_TH = rest_TH - part_TH;
  }
  return columns_THC;
}

}  // namespace magister
