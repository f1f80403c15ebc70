// Runs the blocks of a stream of several vectors on tensors of a folder, for stream_test.py: AltUp's ends, prediction
// and correction, Laurel, and an MLP with sparse gates, whole and in two parts.
// usage: stream_probe FOLDER      FOLDER/sizes.json; FOLDER/NAME.f32
// -> FOLDER/{streams,predicted,active,corrected,scaled,joined,laurel,mlp,mlp_parts}.f32
#include <ATen/ATen.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "magister/core/error.h"
#include "magister/model/transformer.h"
#include "model/cpu/decoder_layer.h"

namespace magister {
namespace {

class Folder {
 public:
  explicit Folder(std::filesystem::path path) : path_(std::move(path)) {
    std::ifstream(path_ / "sizes.json") >> sizes_;
  }
  std::int64_t size(const char* name) const { return sizes_.at(name).get<std::int64_t>(); }
  double number(const char* name) const { return sizes_.at(name).get<double>(); }
  at::Tensor read(const std::string& name, at::IntArrayRef shape) const {
    at::Tensor out = at::empty(shape, at::kFloat);
    std::ifstream file(path_ / (name + ".f32"), std::ios::binary);
    file.read(static_cast<char*>(out.data_ptr()), static_cast<std::streamsize>(out.nbytes()));
    MAGISTER_CHECK(file.gcount() == static_cast<std::streamsize>(out.nbytes()), ExitCode::kData, "{} is short", name);
    return out;
  }
  Linear linear(const std::string& name, std::int64_t rows, std::int64_t columns) const {
    return pack({read(name, {rows, columns}), {}});
  }
  void write(const std::string& name, const at::Tensor& numbers) const {
    std::ofstream(path_ / (name + ".f32"), std::ios::binary)
        .write(static_cast<const char*>(numbers.contiguous().const_data_ptr()),
               static_cast<std::streamsize>(numbers.nbytes()));
  }

 private:
  std::filesystem::path path_;
  nlohmann::json sizes_;
};

void run_stream(const Folder& folder, const at::Tensor& hidden_TD, std::vector<float>& scratch) {
  const std::int64_t T = hidden_TD.size(0), D = hidden_TD.size(1), A = folder.size("inputs");
  const auto eps = static_cast<float>(folder.number("eps"));
  AltUpEnds ends;
  for (std::int64_t i = 0; i + 1 < A; ++i) {
    ends.projections.push_back(folder.linear("projection" + std::to_string(i), D, D));
    ends.unembeddings.push_back(folder.linear("unembedding" + std::to_string(i), D, D));
  }
  AltUp altup{A,
              folder.size("active"),
              folder.linear("router", A, D),
              folder.read("router_norm", {D}) / static_cast<double>(D),
              folder.read("prediction", {A * A, A}),
              folder.read("correction", {A, A}),
              folder.read("scale", {D})};
  at::Tensor streams_TAD = at::empty({T, A, D}), active_TD = at::empty({T, D});
  auto *streams = streams_TAD.data_ptr<float>(), *active = active_TD.data_ptr<float>();
  ends.spread(hidden_TD.const_data_ptr<float>(), streams, T, D, nullptr);
  folder.write("streams", streams_TAD);
  altup.predict(streams, active, T, D, eps, scratch.data(), nullptr);
  folder.write("predicted", streams_TAD);
  folder.write("active", active_TD);
  active_TD.copy_(folder.read("activated", {T, D}));
  altup.correct(active, streams, T, D, eps, scratch.data(), nullptr);
  folder.write("corrected", streams_TAD);
  folder.write("scaled", active_TD);
  ends.join(streams, active, T, D, scratch.data(), nullptr);
  folder.write("joined", active_TD);
}

void run_laurel(const Folder& folder, at::Tensor hidden_TD, std::vector<float>& scratch) {
  const std::int64_t D = hidden_TD.size(1), rank = folder.size("rank");
  const Laurel laurel{folder.linear("left", rank, D), folder.linear("right", D, rank), folder.read("laurel_norm", {D})};
  const BlockNorms norms{folder.read("input_norm", {D}), {}};
  laurel.run(norms, hidden_TD.data_ptr<float>(), hidden_TD.size(0), D, static_cast<float>(folder.number("eps")),
             scratch.data(), nullptr);
  folder.write("laurel", hidden_TD);
}

FeedForward mlp_of(const Folder& folder, std::int64_t D, std::int64_t begin, std::int64_t end) {
  const std::int64_t F = folder.size("columns");
  LayerShape shape;
  shape.hidden_size = D;
  shape.mlp = end - begin;
  shape.all_mlp = F;
  shape.activation = Activation::kGeluTanh;
  shape.gate_cutoff = folder.number("cutoff");
  FeedForwardWeights weights;
  const auto rows = [&](const char* name) { return folder.read(name, {F, D}).narrow(0, begin, end - begin); };
  weights.gate_up_proj = pack({at::cat({rows("gate"), rows("up")}, 0).contiguous(), {}});
  weights.down_proj = pack({folder.read("down", {D, F}).narrow(1, begin, end - begin).contiguous(), {}});
  return FeedForward(shape, std::move(weights));
}

void run_mlp(const Folder& folder, const at::Tensor& hidden_TD) {
  const std::int64_t T = hidden_TD.size(0), D = hidden_TD.size(1), F = folder.size("columns");
  const auto* hidden = hidden_TD.const_data_ptr<float>();
  const PackedBatch batch = pack_sequences({std::vector<TokenId>(static_cast<std::size_t>(T), 0)});
  const BatchPages pages(batch);
  LayerShape sizes;
  sizes.hidden_size = D;
  sizes.mlp = F;
  LayerBuffers buffers(batch, pages.sequences, sizes, 1);
  at::Tensor out_TD = at::empty({T, D});
  mlp_of(folder, D, 0, F).run(hidden, 0, T, buffers, 0, out_TD.data_ptr<float>(), false);
  folder.write("mlp", out_TD);

  const FeedForward parts[] = {mlp_of(folder, D, 0, F / 3), mlp_of(folder, D, F / 3, F)};
  std::vector<at::Tensor> gates;
  at::Tensor sums_T2 = at::zeros({T, 2}, at::kDouble), sum_TD = at::zeros({T, D});
  for (const FeedForward& part : parts) {
    at::Tensor own_T2 = at::empty({T, 2}, at::kDouble);
    gates.push_back(at::empty({T, 2 * part.columns()}));
    part.project(hidden, 0, T, buffers, 0, gates.back().data_ptr<float>(), own_T2.data_ptr<double>());
    sums_T2 += own_T2;
  }
  for (std::size_t i = 0; i < gates.size(); ++i) {
    parts[i].finish(gates[i].data_ptr<float>(), sums_T2.const_data_ptr<double>(), 0, T, buffers, 0,
                    out_TD.data_ptr<float>());
    sum_TD += out_TD;
  }
  folder.write("mlp_parts", sum_TD);
}

}  // namespace
}  // namespace magister

int main(int argc, char** argv) {
  using namespace magister;
  if (argc != 2) return 64;
  const Folder folder(argv[1]);
  const at::Tensor hidden_TD = folder.read("hidden", {folder.size("tokens"), folder.size("hidden")});
  std::vector<float> scratch(static_cast<std::size_t>(hidden_TD.numel() * 4));
  run_stream(folder, hidden_TD, scratch);
  run_laurel(folder, hidden_TD.clone(), scratch);
  run_mlp(folder, hidden_TD);
  return 0;
}
