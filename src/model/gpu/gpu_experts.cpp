// The host waits once per layer for the router's choice, 10 to 20 us. This is little: in each pass the weights of an
// expert are read once, however many tokens chose it.
#include "model/gpu/gpu_experts.h"

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "magister/device/upload.h"
#include "model/cpu/experts.h"
#include "model/gpu/expert_kernels.h"

namespace magister::gpu {

GpuRoutes choose_experts(const at::Tensor& logits_TX, const LayerShape& shape, const Queue& queue) {
  const std::int64_t T = logits_TX.size(0), k = shape.experts_per_token;
  GpuRoutes routes{at::empty({T, k}, logits_TX.options().dtype(at::kInt)), at::empty({T, k}, logits_TX.options())};
  const ChooseExperts kernel{data<float>(logits_TX),
                             data<std::int32_t>(routes.experts_Tk),
                             data<float>(routes.weights_Tk),
                             T,
                             static_cast<int>(shape.num_experts),
                             static_cast<int>(k),
                             shape.norm_topk_prob};
  launch(kernel, kernel.shape(), queue);
  return routes;
}

at::Tensor run_experts(const GpuLayer& layer, const at::Tensor& normed_TD,
                       const std::function<at::Tensor(const GpuExpert&, const at::Tensor&)>& multiply,
                       const Queue& queue) {
  const LayerShape& shape = layer.shape;
  const std::int64_t T = normed_TD.size(0), D = normed_TD.size(1), k = shape.experts_per_token;
  const GpuRoutes routes = choose_experts(product(layer.router, normed_TD, at::kFloat, queue), shape, queue);
  const ExpertGroups groups = group_by_expert(routes.experts_Tk.cpu(), shape.num_experts);
  at::Tensor tokens_N = at::empty({T * k}, at::kLong), row_of_Tk = at::empty({T * k}, at::kInt);
  for (std::int64_t i = 0; i < T * k; ++i) {
    tokens_N.data_ptr<std::int64_t>()[i] = groups.entry[static_cast<std::size_t>(i)] / k;
    row_of_Tk.data_ptr<std::int32_t>()[i] = groups.row_of[static_cast<std::size_t>(i)];
  }
  tokens_N = upload(tokens_N, normed_TD.device());
  row_of_Tk = upload(row_of_Tk, normed_TD.device());
  const auto options =
      normed_TD.options().dtype(layer.experts[0].down_proj.float_out ? at::kFloat : normed_TD.scalar_type());
  at::Tensor rows_ND = at::empty({T * k, D}, options), out_TD = at::empty({T, D}, options);
  for (std::int64_t x = 0; x < shape.num_experts; ++x) {
    const std::int64_t first = groups.first[static_cast<std::size_t>(x)],
                       count = groups.first[static_cast<std::size_t>(x) + 1] - first;
    if (count == 0) continue;
    const at::Tensor own_ND = normed_TD.index_select(0, tokens_N.narrow(0, first, count));
    rows_ND.narrow(0, first, count).copy_(multiply(layer.experts[static_cast<std::size_t>(x)], own_ND));
  }
  with_type(rows_ND.scalar_type(), [&](auto a) {
    using A = decltype(a);
    const SumExperts<A> kernel{
        data<A>(rows_ND),   data<std::int32_t>(row_of_Tk), data<float>(routes.weights_Tk), data<A>(out_TD), D,
        static_cast<int>(k)};
    launch(kernel, kernel.shape(T), queue);
  });
  return out_TD;
}

}  // namespace magister::gpu
