// Finds the stored tensors of each weight, by quantisation method, and checks their types and shapes against each
// other. After these checks no index computed from a window can leave a tensor.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "io/checkpoint/quantized_file.h"
#include "magister/core/error.h"

namespace magister {
namespace {

using Shape = std::vector<std::int64_t>;

constexpr std::int64_t kMaxSize = std::int64_t{1} << 31;  // limit of one dimension: products of two stay far below 2^63

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::string shown(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

bool is_one_number(const Shape& shape) {
  return std::all_of(shape.begin(), shape.end(), [](std::int64_t size) { return size == 1; });
}

class Finder {
 public:
  Finder(const MappedTensors& file, const QuantizationConfig& config) : file_(file), config_(config) {}

  QuantizedWeights find() {
    for (const TensorInfo& info : file_.tensors()) {
      switch (config_.method) {
        case QuantMethod::kGptq:
          if (const auto p = prefix(info, ".qweight")) add(*p, gptq(*p));
          break;
        case QuantMethod::kAwq:
          if (const auto p = prefix(info, ".qweight")) add(*p, awq(*p));
          break;
        case QuantMethod::kCompressedTensors:
        case QuantMethod::kFp8:
          if (const auto p = prefix(info, ".weight_packed")) add(*p, packed(*p));
          if (const auto p = prefix(info, ".weight"); p && is_code(info.type)) add(*p, scaled(*p));
          break;
        case QuantMethod::kBitsAndBytes:
          if (const auto p = prefix(info, ".SCB")) add(*p, bnb_int8(*p));
          if (const auto p = prefix(info, ".weight.absmax")) add(*p, bnb_4bit(*p));
          break;
        case QuantMethod::kMxfp4:
          if (const auto p = prefix(info, "_blocks")) out_.weights.emplace(*p, mxfp4(*p));
          break;
      }
    }
    MAGISTER_CHECK(!out_.weights.empty(), ExitCode::kData,
                   "{}: its quantization_config is there, but no quantised weight is in the "
                   "model's tensors (the config belongs to another model); fetch both again",
                   printable(config_.path));
    return std::move(out_);
  }

 private:
  static std::optional<std::string> prefix(const TensorInfo& info, std::string_view suffix) {
    if (!info.name.ends_with(suffix)) return std::nullopt;
    return info.name.substr(0, info.name.size() - suffix.size());
  }
  static bool is_code(StorageType type) { return type == StorageType::kI8 || type == StorageType::kF8_E4M3; }

  void add(const std::string& name, const QuantizedWeight& weight) {
    MAGISTER_CHECK(weight.out >= 1 && weight.in >= 1 && weight.out <= kMaxSize && weight.in <= kMaxSize,
                   ExitCode::kData, "{}.weight is [{}, {}] (no layer has such a size); fetch the file again",
                   printable(name), weight.out, weight.in);
    const auto same = out_.weights.emplace(name + ".weight", weight);
    MAGISTER_CHECK(same.second, ExitCode::kData,
                   "{}.weight is quantised in two ways (it is ambiguous); fetch the file again", printable(name));
  }

  // A stored tensor of the weight `name`. If it is absent: refused if `needed`, else an empty part.
  StoredPart part(const std::string& name, const char* suffix, bool needed = true) {
    const TensorInfo* info = file_.find(name + suffix);
    MAGISTER_CHECK(info != nullptr || !needed, ExitCode::kData,
                   "{}{} is missing (the quantised weight cannot be read without it); "
                   "fetch the file again",
                   printable(name), suffix);
    if (info == nullptr) return {};
    out_.taken[info->name] = name;
    if (info->num_bytes <= 65536) file_.populate(*info, {0, info->num_bytes});  // some small parts are read at once
    return {info, file_.bytes_of(*info).data()};
  }
  // Marks a tensor that belongs to the weight but is not read (input scales: activations are not quantised here).
  void ignore(const std::string& name, const char* suffix) { part(name, suffix, false); }

  void expect(const StoredPart& p, const Shape& shape, std::initializer_list<StorageType> types) const {
    std::vector<std::string> names;
    bool known = false;
    for (const StorageType type : types) {
      names.push_back(to_string(type));
      known = known || p.info->type == type;
    }
    MAGISTER_CHECK(known && p.info->shape == shape, ExitCode::kData,
                   "tensor {} is {} {}, but the weight's other parts and the config "
                   "ask for {} {} (it would be read wrongly); fetch the file again",
                   printable(p.info->name), to_string(p.info->type), shown(p.info->shape), fmt::join(names, " or "),
                   shown(shape));
  }
  void expect_rank(const StoredPart& p, std::size_t rank) const {
    MAGISTER_CHECK(p.info->shape.size() == rank, ExitCode::kData,
                   "tensor {} is {} (a shape of {} numbers is expected of this "
                   "quantisation); fetch the file again",
                   printable(p.info->name), shown(p.info->shape), rank);
    for (const std::int64_t size : p.info->shape) {
      MAGISTER_CHECK(size >= 1 && size <= kMaxSize, ExitCode::kData,
                     "tensor {} is {} (no layer has such a size); fetch the file "
                     "again",
                     printable(p.info->name), shown(p.info->shape));
    }
  }

  // Inputs per scale if there are `groups` of them: all inputs, or the config's size that fits.
  std::int64_t group_size(const std::string& name, std::int64_t in, std::int64_t groups) const {
    if (groups == 1) return in;
    for (const std::int64_t size : config_.group_sizes) {
      if (ceil_div(in, size) == groups) return size;
    }
    fail(ExitCode::kData,
         "{} has scales for {} groups of its {} inputs (no group_size of the quantization_config gives that: {}); "
         "fetch the config again",
         printable(name), groups, in, fmt::join(config_.group_sizes, ", "));
  }

  void expect_group_index(QuantizedWeight& w) const {
    if (w.group_index) expect(w.group_index, {w.in}, {StorageType::kI32});
  }

  static constexpr std::initializer_list<StorageType> kFloats = {StorageType::kF32, StorageType::kF16,
                                                                 StorageType::kBF16};

  QuantizedWeight gptq(const std::string& name) {
    QuantizedWeight w;
    w.layout = CodeLayout::kWordsByInput;
    w.codes = part(name, ".qweight");
    w.scales = part(name, ".scales");
    w.zeros = part(name, ".qzeros");
    w.group_index = part(name, ".g_idx", false);
    expect_rank(w.codes, 2);
    expect_rank(w.scales, 2);
    w.out = w.codes.info->shape[1];
    w.bits = gptq_bits(w);
    w.in = w.codes.info->shape[0] * (32 / w.bits);
    w.groups = w.scales.info->shape[0];
    w.scales_by_group = true;
    w.group = group_size(name, w.in, w.groups);
    w.zero_layout = ZeroLayout::kAlongOutputs;
    expect(w.codes, {w.in / (32 / w.bits), w.out}, {StorageType::kI32});
    expect(w.scales, {w.groups, w.out}, kFloats);
    expect(w.zeros, {w.groups, ceil_div(w.out, 32 / w.bits)}, {StorageType::kI32});
    expect_group_index(w);
    w.zero_added = zero_added(w);
    return w;
  }

  // Bits of this module: with `dynamic` some modules have other bits than the config's first. The zeros have one code
  // per output, so their shape gives the bits.
  std::int64_t gptq_bits(const QuantizedWeight& w) const {
    for (const std::int64_t bits : config_.bits) {
      if (w.zeros.info->shape.size() == 2 && w.zeros.info->shape[1] == ceil_div(w.out, 32 / bits)) return bits;
    }
    return config_.bits.empty() ? 4 : config_.bits.front();
  }

  // The zeros of a symmetric module are the middle code. The stored value tells v1 (one less) from v2; files whose
  // config says v1 but that hold v2 exist. `dynamic` makes some modules asymmetric although the config says sym: their
  // zeros differ, so all of them are compared.
  std::int64_t zero_added(const QuantizedWeight& w) const {
    const std::int64_t declared = config_.stored_zero_is_true ? 0 : 1, per_word = 32 / w.bits;
    if (!config_.symmetric) return declared;
    const auto stored = [&](std::int64_t output) {
      return code_of(static_cast<std::uint32_t>(int_at(w.zeros, output / per_word)), output % per_word, w.bits);
    };
    const std::int64_t first = stored(0), middle = std::int64_t{1} << (w.bits - 1);
    for (std::int64_t output = 1; output < w.out; ++output) {
      if (stored(output) != first) return declared;
    }
    return first == middle ? 0 : first == middle - 1 ? 1 : declared;
  }

  QuantizedWeight awq(const std::string& name) {
    QuantizedWeight w;
    w.layout = CodeLayout::kAwq;
    w.codes = part(name, ".qweight");
    w.scales = part(name, ".scales");
    w.zeros = part(name, ".qzeros");
    expect_rank(w.codes, 2);
    expect_rank(w.scales, 2);
    w.in = w.codes.info->shape[0];
    w.out = w.codes.info->shape[1] * 8;
    w.groups = w.scales.info->shape[0];
    w.scales_by_group = true;
    w.group = group_size(name, w.in, w.groups);
    w.zero_layout = ZeroLayout::kAwq;
    expect(w.codes, {w.in, w.out / 8}, {StorageType::kI32});
    expect(w.scales, {w.groups, w.out}, kFloats);
    expect(w.zeros, {w.groups, w.out / 8}, {StorageType::kI32});
    return w;
  }

  QuantizedWeight packed(const std::string& name) {
    QuantizedWeight w;
    w.codes = part(name, ".weight_packed");
    const StoredPart shape = part(name, ".weight_shape");
    w.scales = part(name, ".weight_scale");
    w.zeros = part(name, ".weight_zero_point", false);
    w.group_index = part(name, ".weight_g_idx", false);
    ignore_activations(name);
    expect_rank(w.codes, 2);
    expect(shape, {2}, {StorageType::kI64, StorageType::kI32});
    read_shape(shape, w);
    w.bits = packed_bits(name, w);
    const std::int64_t n = 32 / w.bits;
    expect(w.codes, {w.out, ceil_div(w.in, n)}, {StorageType::kI32});
    if (w.out > 1 && is_one_number(w.scales.info->shape)) return packed_by_tensor(w);
    expect_rank(w.scales, 2);
    w.groups = w.scales.info->shape[1];
    w.group = group_size(name, w.in, w.groups);
    w.center = std::int64_t{1} << (w.bits - 1);
    expect(w.scales, {w.out, w.groups}, kFloats);
    if (w.zeros) {
      w.zero_layout = ZeroLayout::kByOutput;
      expect(w.zeros, {ceil_div(w.out, n), w.groups}, {StorageType::kI32});
    }
    expect_group_index(w);
    return w;
  }

  // Reads a weight with a single scale and, where there is one, a single zero, which is not packed as others are.
  QuantizedWeight packed_by_tensor(QuantizedWeight w) const {
    w.group = w.in;
    w.rows_a_scale = w.out;
    w.center = std::int64_t{1} << (w.bits - 1);
    expect(w.scales, w.scales.info->shape, kFloats);
    expect_group_index(w);
    if (!w.zeros) return w;
    expect(w.zeros, w.scales.info->shape, {StorageType::kI8});
    w.center += static_cast<std::int8_t>(w.zeros.data[0]);
    w.zeros = {};
    return w;
  }

  void read_shape(const StoredPart& shape, QuantizedWeight& w) const {
    const bool wide = shape.info->type == StorageType::kI64;
    const auto value = [&](std::int64_t i) {
      if (!wide) return static_cast<std::int64_t>(int_at(shape, i));
      std::int64_t v;
      std::copy_n(shape.data + 8 * i, 8, reinterpret_cast<std::byte*>(&v));
      return v;
    };
    w.out = value(0);
    w.in = value(1);
    MAGISTER_CHECK(w.out >= 1 && w.in >= 1 && w.out <= kMaxSize && w.in <= kMaxSize, ExitCode::kData,
                   "tensor {} says [{}, {}] (no layer has such a size); fetch the file again",
                   printable(shape.info->name), w.out, w.in);
  }

  // The config's bits that give the packed width; if the config names several, only one of them can.
  std::int64_t packed_bits(const std::string& name, const QuantizedWeight& w) const {
    for (const std::int64_t bits : config_.bits) {
      if (ceil_div(w.in, 32 / bits) == w.codes.info->shape[1]) return bits;
    }
    fail(ExitCode::kData,
         "{}.weight_packed has {} words for {} inputs (the quantization_config's bits, {}, do not give that); fetch "
         "the file again",
         printable(name), w.codes.info->shape[1], w.in, fmt::join(config_.bits, ", "));
  }

  void ignore_activations(const std::string& name) {
    for (const char* suffix : {".input_scale", ".input_zero_point", ".input_global_scale", ".input_g_idx",
                               ".output_scale", ".output_zero_point"})
      ignore(name, suffix);
  }

  // i8 or e4m3 [out, in] with one scale for all, or scales by output, by group or in blocks.
  QuantizedWeight scaled(const std::string& name) {
    QuantizedWeight w;
    w.codes = part(name, ".weight");
    expect_rank(w.codes, 2);
    w.out = w.codes.info->shape[0];
    w.in = w.codes.info->shape[1];
    w.bits = 8;
    w.layout = w.codes.info->type == StorageType::kI8 ? CodeLayout::kInt8 : CodeLayout::kFp8;
    w.scales = part(name, ".weight_scale", false);
    const StoredPart inverse = part(name, ".weight_scale_inv", false);  // despite its name it is a factor, too
    MAGISTER_CHECK(static_cast<bool>(w.scales) != static_cast<bool>(inverse), ExitCode::kData,
                   "{}.weight is {} and needs a weight_scale or a weight_scale_inv, one of them (its values would be "
                   "wrong); fetch the file again",
                   printable(name), to_string(w.codes.info->type));
    if (inverse) w.scales = inverse;
    w.zeros = part(name, ".weight_zero_point", false);
    ignore_activations(name);
    place_scales(name, w);
    if (w.zeros) {
      MAGISTER_CHECK(w.rows_a_scale == 1 && w.layout == CodeLayout::kInt8, ExitCode::kData,
                     "{}.weight_zero_point is given with FP8 or with one scale for several outputs (that is not "
                     "supported); use another checkpoint",
                     printable(name));
      w.zero_layout = ZeroLayout::kInt8;
      expect(w.zeros, w.scales.info->shape, {StorageType::kI8});
    }
    return w;
  }

  std::string blocks_named() const {
    std::string out;
    for (const WeightBlock& block : config_.blocks)
      out += fmt::format("{}{} x {}", out.empty() ? "blocks of " : " and of ", block.rows, block.columns);
    return out.empty() ? "blocks" : out;
  }

  void place_scales(const std::string& name, QuantizedWeight& w) const {
    const Shape& shape = w.scales.info->shape;
    const std::int64_t rows = shape.empty() ? 1 : shape[0], groups = shape.size() < 2 ? 1 : shape[1];
    std::vector<WeightBlock> fitting;
    for (const WeightBlock& block : config_.blocks) {
      const WeightBlock here{std::min(block.rows, w.out), std::min(block.columns, w.in)};
      const bool fits = rows == ceil_div(w.out, here.rows) && groups == ceil_div(w.in, here.columns),
                 is_new = std::find(fitting.begin(), fitting.end(), here) == fitting.end();
      if (shape.size() == 2 && fits && is_new) fitting.push_back(here);
    }
    w.groups = groups;
    if (rows == 1 && groups == 1) {
      w.rows_a_scale = w.out;
      w.group = w.in;
    } else if (!fitting.empty()) {
      MAGISTER_CHECK(fitting.size() == 1, ExitCode::kData,
                     "tensor {} is {} for a weight [{}, {}], and quantization_config names {} (several fit, so the "
                     "numbers are not known); use a checkpoint with one size of blocks",
                     printable(w.scales.info->name), shown(shape), w.out, w.in, blocks_named());
      w.rows_a_scale = fitting[0].rows;
      w.group = fitting[0].columns;
    } else {
      MAGISTER_CHECK(rows == w.out && shape.size() <= 2, ExitCode::kData,
                     "tensor {} is {} for a weight [{}, {}] (one scale, one an output, by group, or in {} fit); fetch "
                     "the file again",
                     printable(w.scales.info->name), shown(shape), w.out, w.in, blocks_named());
      w.group = group_size(name, w.in, groups);
    }
    expect(w.scales, shape, kFloats);
  }

  QuantizedWeight bnb_int8(const std::string& name) {
    QuantizedWeight w;
    w.codes = part(name, ".weight");
    w.scales = part(name, ".SCB");
    const StoredPart format = part(name, ".weight_format", false);
    expect_rank(w.codes, 2);
    w.out = w.codes.info->shape[0];
    w.in = w.codes.info->shape[1];
    w.bits = 8;
    w.layout = CodeLayout::kInt8;
    w.group = w.in;
    w.after_scale = 0.007874015718698502f;  // the library's constant for 1 / 127
    expect(w.codes, {w.out, w.in}, {StorageType::kI8});
    expect(w.scales, {w.out}, {StorageType::kF32});
    MAGISTER_CHECK(
        !format ||
            (format.info->type == StorageType::kU8 && format.info->num_bytes == 1 && format.data[0] == std::byte{0}),
        ExitCode::kData,
        "{}.weight_format is not 0 (only rows are read, not a GPU's own order of tiles); save the model again "
        "with a current bitsandbytes",
        printable(name));
    return w;
  }

  QuantizedWeight mxfp4(const std::string& name) {
    QuantizedWeight w;
    w.layout = CodeLayout::kMxfp4;
    w.codes = part(name, "_blocks");
    w.scales = part(name, "_scales");
    expect_rank(w.codes, 4);
    const Shape& shape = w.codes.info->shape;
    w.experts = shape[0];
    w.out = shape[1];
    w.group = kMxfp4Group;
    w.groups = shape[2];
    w.in = w.groups * w.group;
    expect(w.codes, {w.experts, w.out, w.groups, w.group / 2}, {StorageType::kU8});
    expect(w.scales, {w.experts, w.out, w.groups}, {StorageType::kU8});
    return w;
  }

  QuantizedWeight bnb_4bit(const std::string& name);
  void read_nested(const std::string& name, const nlohmann::json& state, QuantizedWeight& w);

  const MappedTensors& file_;
  const QuantizationConfig& config_;
  QuantizedWeights out_;
};

std::int64_t state_integer(const nlohmann::json& state, const char* key, const std::string& name) {
  const auto found = state.find(key);
  MAGISTER_CHECK(found != state.end() && found->is_number_unsigned() && found->get<std::uint64_t>() >= 1 &&
                     found->get<std::uint64_t>() <= (1u << 20),
                 ExitCode::kData,
                 "{}'s quant_state has no {} from 1 to 2^20 (its blocks are unknown); fetch the file again",
                 printable(name), key);
  return found->get<std::int64_t>();
}

QuantizedWeight Finder::bnb_4bit(const std::string& name) {
  QuantizedWeight w;
  w.layout = CodeLayout::kNibbles;
  w.codes = part(name, ".weight");
  w.absmax = part(name, ".weight.absmax");
  const StoredPart table = part(name, ".weight.quant_map");
  StoredPart text = part(name, ".weight.quant_state.bitsandbytes__nf4", false);
  if (!text) text = part(name, ".weight.quant_state.bitsandbytes__fp4");
  const auto* begin = reinterpret_cast<const char*>(text.data);
  const bool small = text.info->type == StorageType::kU8 && text.info->num_bytes <= 65536;
  const nlohmann::json state =
      small ? nlohmann::json::parse(begin, begin + text.info->num_bytes, nullptr, false) : nlohmann::json();
  MAGISTER_CHECK(state.is_object() && state.contains("shape") && state["shape"].is_array() &&
                     state["shape"].size() == 2 && state["shape"][0].is_number_unsigned() &&
                     state["shape"][1].is_number_unsigned(),
                 ExitCode::kData,
                 "tensor {} holds no JSON object with a shape of two numbers (the weight's size is unknown); fetch "
                 "the file again",
                 printable(text.info->name));
  const auto out = state["shape"][0].get<std::uint64_t>(), in = state["shape"][1].get<std::uint64_t>();
  MAGISTER_CHECK(out - 1 < static_cast<std::uint64_t>(kMaxSize) && in - 1 < static_cast<std::uint64_t>(kMaxSize),
                 ExitCode::kData, "tensor {} says [{}, {}] (no layer has such a size); fetch the file again",
                 printable(text.info->name), out, in);
  w.out = static_cast<std::int64_t>(out);
  w.in = static_cast<std::int64_t>(in);
  w.block = state_integer(state, "blocksize", name);
  const std::int64_t elements = w.out * w.in, blocks = ceil_div(elements, w.block);
  expect(w.codes, {ceil_div(elements, 2), 1}, {StorageType::kU8});
  expect(table, {16}, {StorageType::kF32});
  for (std::int64_t i = 0; i < 16; ++i) w.table[i] = float_at(table, i);
  if (state.contains("nested_blocksize")) {
    read_nested(name, state, w);
    expect(w.absmax, {blocks}, {StorageType::kU8});
    expect(w.nested_absmax, {ceil_div(blocks, w.nested_block)}, {StorageType::kF32});
  } else {
    expect(w.absmax, {blocks}, {StorageType::kF32});
  }
  return w;
}

void Finder::read_nested(const std::string& name, const nlohmann::json& state, QuantizedWeight& w) {
  w.nested_block = state_integer(state, "nested_blocksize", name);
  w.nested_absmax = part(name, ".weight.nested_absmax");
  w.nested_table = part(name, ".weight.nested_quant_map");
  expect(w.nested_table, {256}, {StorageType::kF32});
  const auto offset = state.find("nested_offset");
  MAGISTER_CHECK(
      offset != state.end() && offset->is_number() && std::isfinite(offset->get<double>()), ExitCode::kData,
      "{}'s quant_state has nested scales without a nested_offset (they would be wrong); fetch the file again",
      printable(name));
  w.nested_offset = offset->get<float>();
}

}  // namespace

QuantizedWeights find_quantized_weights(const MappedTensors& file, const QuantizationConfig& config) {
  return Finder(file, config).find();
}

}  // namespace magister
