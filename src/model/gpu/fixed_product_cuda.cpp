// Implements ProductAlgorithms with cuBLASLt. A run on GPUs loads the library together with libtorch's GPU libraries
// (device/gpu.h), so its functions are looked up and not linked. Its matrices are column-major: out^T [N, M] = weight
// [N, K] * x^T [K, M].
// Source: the cuBLAS library's user guide, "Using the cuBLASLt API".
#include <ATen/ATen.h>
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <array>
#include <utility>
#include <vector>

#include "magister/core/error.h"
#include "magister/device/gpu.h"
#include "model/gpu/fixed_product.h"

#define MAGISTER_SCALES_OF_ROWS_SINCE 120900  // CUBLAS_VERSION

namespace magister::gpu {
namespace {

constexpr const char* kLibrary = CUBLAS_VER_MAJOR == 13 ? "libcublasLt.so.13" : "libcublasLt.so.12";
constexpr int kMostAlgorithms = 32;       // how many algorithms are requested; the first few are as good as all
constexpr std::uint32_t kAlignment = 16;  // alignment of all factors, in bytes

// The functions of the library that are used here.
struct Lt {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulDescCreate) make_product = nullptr;
  decltype(&cublasLtMatmulDescDestroy) end_product = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set_product = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) make_layout = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) end_layout = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) make_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) end_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) find_algorithms = nullptr;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) get_setting = nullptr;
  bool whole = true;  // all functions were found

  explicit Lt(void* library) {
    look_up(library, "cublasLtCreate", create);
    look_up(library, "cublasLtMatmul", matmul);
    look_up(library, "cublasLtMatmulDescCreate", make_product);
    look_up(library, "cublasLtMatmulDescDestroy", end_product);
    look_up(library, "cublasLtMatmulDescSetAttribute", set_product);
    look_up(library, "cublasLtMatrixLayoutCreate", make_layout);
    look_up(library, "cublasLtMatrixLayoutDestroy", end_layout);
    look_up(library, "cublasLtMatmulPreferenceCreate", make_preference);
    look_up(library, "cublasLtMatmulPreferenceDestroy", end_preference);
    look_up(library, "cublasLtMatmulPreferenceSetAttribute", set_preference);
    look_up(library, "cublasLtMatmulAlgoGetHeuristic", find_algorithms);
    look_up(library, "cublasLtMatmulAlgoConfigGetAttribute", get_setting);
  }

 private:
  template <typename Function>
  void look_up(void* library, const char* name, Function& function) {
    function = library == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library, name));
    whole = whole && function != nullptr;
  }
};

const Lt& lt() {
  static const Lt functions(dlopen(kLibrary, RTLD_NOW | RTLD_NOLOAD));
  return functions;
}

void check(cublasStatus_t status, const char* call) {
  MAGISTER_CHECK(status == CUBLAS_STATUS_SUCCESS, ExitCode::kInternal,
                 "{} ended with status {} of cuBLAS (products cannot be prepared); report this", call,
                 static_cast<int>(status));
}

// Owns a descriptor of the library. Move-only.
template <typename Handle, auto kEnd>
class Owned {
 public:
  Owned() = default;
  ~Owned() {
    if (handle_ != nullptr) (lt().*kEnd)(handle_);
  }
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&&) = delete;
  Handle* place() { return &handle_; }
  Handle get() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};
using Layout = Owned<cublasLtMatrixLayout_t, &Lt::end_layout>;
using Product = Owned<cublasLtMatmulDesc_t, &Lt::end_product>;
using Preference = Owned<cublasLtMatmulPreference_t, &Lt::end_preference>;

cudaDataType_t type_of(at::ScalarType type) {
  return type == at::kFloat ? CUDA_R_32F : type == at::kFloat8_e4m3fn ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
}

bool is_aligned(const at::Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % kAlignment == 0;
}

// The rows of a row-major matrix are columns for the library.
Layout layout_of(at::ScalarType type, std::int64_t rows, std::int64_t columns) {
  Layout layout;
  check(lt().make_layout(layout.place(), type_of(type), static_cast<std::uint64_t>(columns),
                         static_cast<std::uint64_t>(rows), columns),
        "cublasLtMatrixLayoutCreate");
  return layout;
}

// One handle per device and process. It exists until the process ends, like ATen's own handles.
cublasLtHandle_t handle_of(int device) {
  static std::array<cublasLtHandle_t, 64> handles{};
  cublasLtHandle_t& handle = handles.at(static_cast<std::size_t>(device));
  if (handle == nullptr) check(lt().create(&handle), "cublasLtCreate");
  return handle;
}

class LtAlgorithms final : public ProductAlgorithms {
 public:
  LtAlgorithms(std::int64_t N, std::int64_t K, at::ScalarType type, at::ScalarType out_type, const Queue& queue,
               std::int64_t asked_rows)
      : handle_(handle_of(queue.device)), out_type_(out_type), weight_(layout_of(type, N, K)) {
    const auto ones = [&](std::int64_t count) {
      return at::ones({count}, at::dtype(at::kFloat).device(at::kCUDA, static_cast<c10::DeviceIndex>(queue.device)));
    };
    const bool fp8 = type == at::kFloat8_e4m3fn;
    const Product product = fp8 ? product_of(ones(N), ones(asked_rows)) : product_of({}, {});
    find(product, layout_of(type, asked_rows, K), layout_of(out_type, asked_rows, N));
  }

  int count() const override { return static_cast<int>(algorithms_.size()); }

  bool multiply(int algorithm, const ProductFactors& factors, at::Tensor& out_MN, const Queue& queue) const override {
    const at::Tensor &x_MK = factors.x_MK, &weight_NK = factors.weight_NK;
    MAGISTER_ASSERT(x_MK.is_contiguous() && weight_NK.is_contiguous() && out_MN.is_contiguous());
    MAGISTER_ASSERT(out_MN.scalar_type() == out_type_);
    if (!is_aligned(x_MK) || !is_aligned(weight_NK) || !is_aligned(out_MN)) return false;
    at::Tensor scale_M1 = factors.scale_M1;  // the rows of an expert may begin at any address
    if (factors.is_fp8() && !is_aligned(scale_M1)) scale_M1 = scale_M1.clone();
    const Product product = product_of(factors.weight_scale_1N, scale_M1);
    const Layout x = layout_of(x_MK.scalar_type(), x_MK.size(0), x_MK.size(1)),
                 out = layout_of(out_type_, out_MN.size(0), out_MN.size(1));
    const float one = 1, zero = 0;
    const cublasStatus_t status = lt().matmul(
        handle_, product.get(), &one, weight_NK.const_data_ptr(), weight_.get(), x_MK.const_data_ptr(), x.get(), &zero,
        out_MN.const_data_ptr(), out.get(), out_MN.data_ptr(), out.get(),
        &algorithms_[static_cast<std::size_t>(algorithm)], nullptr, 0, static_cast<cudaStream_t>(queue.stream));
    if (status != CUBLAS_STATUS_SUCCESS)
      cudaGetLastError();  // otherwise ATen would report this error for the next kernel
    return status == CUBLAS_STATUS_SUCCESS;
  }

 private:
  // Describes the product of the transposed weight with rows. Both scales are f32 on the device, one per output and one
  // per row, or both undefined.
  static Product product_of(const at::Tensor& weight_scales, const at::Tensor& row_scales) {
    Product product;
    check(lt().make_product(product.place(), CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
      check(lt().set_product(product.get(), attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    if (!weight_scales.defined()) return product;
#if CUBLAS_VERSION >= MAGISTER_SCALES_OF_ROWS_SINCE
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, std::int32_t{CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F});
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, std::int32_t{CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F});
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, weight_scales.const_data_ptr());
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, row_scales.const_data_ptr());
    set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t{1});  // as _scaled_mm() for tiles; see gpu_linear.cpp
#endif
    return product;
  }

  // Without workspace and reduction scheme, K is not split, and tiles are not shared between blocks.
  void find(const Product& product, const Layout& x, const Layout& out) {
    Preference preference;
    check(lt().make_preference(preference.place()), "cublasLtMatmulPreferenceCreate");
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      check(lt().set_preference(preference.get(), attribute, &value, sizeof value),
            "cublasLtMatmulPreferenceSetAttribute");
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{0});
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE));
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      set(attribute, kAlignment);
    std::array<cublasLtMatmulHeuristicResult_t, kMostAlgorithms> found{};
    int count = 0;
    const cublasStatus_t status =
        lt().find_algorithms(handle_, product.get(), weight_.get(), x.get(), out.get(), out.get(), preference.get(),
                             kMostAlgorithms, found.data(), &count);
    if (status != CUBLAS_STATUS_SUCCESS) return;  // no algorithm supports sizes that are not multiples of 16 bytes
    for (int i = 0; i < count; ++i) {
      const cublasLtMatmulHeuristicResult_t& one = found[static_cast<std::size_t>(i)];
      if (one.state == CUBLAS_STATUS_SUCCESS && sums_are_whole(one.algo)) algorithms_.push_back(one.algo);
    }
  }

  static bool sums_are_whole(const cublasLtMatmulAlgo_t& algorithm) {
    std::int32_t parts = 0;
    std::size_t written = 0;
    check(lt().get_setting(&algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts, sizeof parts, &written),
          "cublasLtMatmulAlgoConfigGetAttribute");
    return parts <= 1 && parts >= 0;
  }

  cublasLtHandle_t handle_;
  at::ScalarType out_type_;
  Layout weight_;
  std::vector<cublasLtMatmulAlgo_t> algorithms_;
};

}  // namespace

bool has_cublas_lt() { return lt().whole; }

std::shared_ptr<const ProductAlgorithms> lt_algorithms(std::int64_t N, std::int64_t K, at::ScalarType type,
                                                       at::ScalarType out_type, const Queue& queue,
                                                       std::int64_t asked_rows) {
  if (queue.on_host() || !has_cublas_lt()) return nullptr;
  if (type == at::kFloat8_e4m3fn && CUBLAS_VERSION < MAGISTER_SCALES_OF_ROWS_SINCE) return nullptr;
  auto algorithms = std::make_shared<LtAlgorithms>(N, K, type, out_type, queue, asked_rows);
  return algorithms->count() > 0 ? algorithms : nullptr;
}

}  // namespace magister::gpu
