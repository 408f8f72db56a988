#include "ops/cuda/lt_engine.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "core/clock.h"
#include "core/cuda/library.h"

namespace trifold::cuda::blas {

namespace {

constexpr int kMostMeasured = 8;  // algorithms of one product
constexpr int kMostTried = 32;    // if the first proposal is rejected

std::string text_of(cudaDataType_t type) {
  switch (type) {
    case CUDA_R_64F:
      return "f64";
    case CUDA_R_32F:
      return "f32";
    case CUDA_R_16BF:
      return "bf16";
    case CUDA_R_16F:
      return "f16";
    case CUDA_R_8F_E4M3:
      return "e4m3";
    case CUDA_R_8F_E5M2:
      return "e5m2";
    default:
      return std::to_string(static_cast<int>(type));
  }
}

// 16 hexadecimal digits for each word.
std::string text_of(const cublasLtMatmulAlgo_t& algorithm) {
  std::string text;
  for (const uint64_t word : algorithm.data) text += fmt::format("{:016x}", word);
  return text;
}

cublasLtMatmulAlgo_t algorithm_of(const ProductChoice& choice) {
  constexpr size_t kDigits = 16;
  cublasLtMatmulAlgo_t algorithm{};
  const std::string& text = choice.algorithm;
  bool sound = text.size() == kDigits * std::size(algorithm.data);
  for (size_t i = 0; sound && i < std::size(algorithm.data); ++i) {
    const char* begin = text.data() + i * kDigits;
    const auto read = std::from_chars(begin, begin + kDigits, algorithm.data[i], 16);
    sound = read.ec == std::errc() && read.ptr == begin + kDigits;
  }
  if (!sound)
    bad_input("the algorithm of the product \"{}\" is \"{}\": 128 hexadecimal digits are needed",
              choice.product, text);
  return algorithm;
}

// Whether cuBLASLt rejected the call because of its arguments, before it enqueued anything.
bool is_rejection(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
         status == CUBLAS_STATUS_ARCH_MISMATCH;
}

}  // namespace

const Lt& installed_lt() {
  static const Lt kLt = [] {
    const Library library(fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR), "cuBLASLt");
    Lt lt;
    library.find("cublasLtCreate", &lt.create);
    library.find("cublasLtGetStatusString", &lt.text);
    library.find("cublasLtGetVersion", &lt.version);
    library.find("cublasLtMatmulDescCreate", &lt.desc_create);
    library.find("cublasLtMatmulDescDestroy", &lt.desc_destroy);
    library.find("cublasLtMatmulDescSetAttribute", &lt.desc_set);
    library.find("cublasLtMatrixLayoutCreate", &lt.layout_create);
    library.find("cublasLtMatrixLayoutDestroy", &lt.layout_destroy);
    library.find("cublasLtMatmulPreferenceCreate", &lt.preference_create);
    library.find("cublasLtMatmulPreferenceDestroy", &lt.preference_destroy);
    library.find("cublasLtMatmulPreferenceSetAttribute", &lt.preference_set);
    library.find("cublasLtMatmulAlgoGetHeuristic", &lt.heuristic);
    library.find("cublasLtMatmul", &lt.matmul);
    return lt;
  }();
  return kLt;
}

LtEngine::LtEngine(const Lt& lt, std::string device, std::string made_for)
    : lt_(lt), device_(std::move(device)), made_for_(std::move(made_for)) {
  lt.check_status(lt.create(&handle_), "starting");
}

bool LtEngine::try_run(const Product& product, DeviceQueue& queue) {
  return enqueue(product, queue).algorithm.has_value();
}

void LtEngine::run(const Product& product, DeviceQueue& queue) {
  const Choice choice = enqueue(product, queue);
  if (choice.algorithm) [[likely]]
    return;
  fail("cuBLASLt has no algorithm for a product ({}) on {}: {}", Key(product).text(), device_,
       choice.why_none);
}

void LtEngine::run(const Product& product, const cublasLtMatmulAlgo_t& algorithm, DeviceQueue& queue) {
  must_run(product, Described(lt_, product), algorithm, queue);
}

std::vector<cublasLtMatmulAlgo_t> LtEngine::propose(const Product& product, int most) {
  return propose(product, Described(lt_, product), most);
}

void LtEngine::measure(bool on) {
  const std::lock_guard lock(mutex_);
  measures_ = on;
}

std::vector<ProductChoice> LtEngine::choices() const {
  const std::lock_guard lock(mutex_);
  std::vector<ProductChoice> all;
  for (const auto& [product, algorithm] : kept_) all.push_back({product, text_of(algorithm)});
  return all;
}

void LtEngine::use(std::span<const ProductChoice> choices) {
  std::map<std::string, cublasLtMatmulAlgo_t> named;
  for (const ProductChoice& choice : choices) named.insert_or_assign(choice.product, algorithm_of(choice));
  const std::lock_guard lock(mutex_);
  kept_ = std::move(named);
  chosen_.clear();
  ++uses_;
}

LtEngine::Key::Key(const Product& p)
    : factors(p.factors),
      result(p.result),
      m(p.m),
      n(p.n),
      k(p.k),
      transpose_a(p.transpose_a),
      transpose_b(p.transpose_b),
      epilogue(p.epilogue),
      type_a(type_of(p.narrow_a, p.factors)),
      type_b(type_of(p.narrow_b, p.factors)),
      scales_a(p.narrow_a.form),
      scales_b(p.narrow_b.form),
      other_c(p.c != nullptr),
      tf32(p.tf32),
      adds(p.beta != 0),
      alignments{alignment_of(p.a), alignment_of(p.b),    alignment_of(c_of(p)),
                 alignment_of(p.d), alignment_of(p.bias), alignment_of(p.aux)} {}

std::string LtEngine::Key::text() const {
  constexpr const char* kEpilogues[] = {"plain", "bias", "bias and ReLU", "bias and GELU", "GELU's slope"};
  constexpr const char* kScales[] = {"", " in rows", " in squares"};
  return fmt::format("{}{} x {}{} of {}{} into {}, m {} n {} k {}, {}{}, {}{}{}, aligned to {}",
                     text_of(type_a), kScales[static_cast<size_t>(scales_a)], text_of(type_b),
                     kScales[static_cast<size_t>(scales_b)], name_of(factors), tf32 ? " in TF32" : "",
                     name_of(result), m, n, k, transpose_a ? "T" : "N", transpose_b ? "T" : "N",
                     kEpilogues[static_cast<size_t>(epilogue)], other_c ? ", c apart" : "",
                     adds ? ", adds" : "", fmt::join(alignments, " "));
}

LtEngine::Choice LtEngine::enqueue(const Product& p, DeviceQueue& queue) {
  queue.native();  // makes the device current
  const Described described(lt_, p);
  const Key key(p);
  std::optional<Choice> known;
  int64_t uses = 0;
  {
    const std::lock_guard lock(mutex_);
    uses = uses_;
    if (const auto found = chosen_.find(key); found != chosen_.end()) known = found->second;
  }
  if (known) {
    if (known->algorithm) must_run(p, described, *known->algorithm, queue);
    return *known;
  }
  // Without the mutex, so that other threads need not wait. Another thread with the same product finds the same
  // algorithm.
  Choice choice = enqueue_first(p, described, key, queue);
  const std::lock_guard lock(mutex_);
  if (uses == uses_) chosen_.try_emplace(key, choice);
  return choice;
}

LtEngine::Choice LtEngine::enqueue_first(const Product& p, const Described& described, const Key& key,
                                         DeviceQueue& queue) {
  std::vector<std::string> tried;
  size_t invalid = 0;  // algorithms rejected as invalid values
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  const auto takes = [&](const cublasLtMatmulAlgo_t& algorithm) {
    if (std::find(tried.begin(), tried.end(), text_of(algorithm)) != tried.end()) return false;
    tried.push_back(text_of(algorithm));
    const bool ran = runs(p, described, algorithm, queue, status);
    if (status == CUBLAS_STATUS_INVALID_VALUE) ++invalid;
    return ran;
  };
  if (const auto kept = kept_or_measured(p, described, key, queue)) {
    if (runs(p, described, *kept, queue, status)) return {kept, {}};
    bad_input(
        "cuBLASLt rejects the algorithm kept for a product ({}) on {}: {}. Another would have other bits: give "
        "--tune-products another file, or remove this one, and products are measured again",
        key.text(), device_, lt_.text(status));
  }
  for (const int most : {1, kMostTried}) {
    const auto proposed = propose(p, described, most);
    if (proposed.empty()) break;
    for (const cublasLtMatmulAlgo_t& algorithm : proposed)
      if (takes(algorithm)) return {algorithm, {}};
  }
  if (tried.empty()) return {{}, "it proposes none"};
  if (invalid == tried.size())
    fail(
        "a product ({}) on {} is described wrongly: it is invalid for each of the {} algorithms that cuBLASLt "
        "proposes ({})",
        key.text(), device_, tried.size(), lt_.text(status));
  return {{}, fmt::format("it rejects each of the {} that it proposes ({})", tried.size(), lt_.text(status))};
}

cublasStatus_t LtEngine::multiply(const Product& p, const Described& described,
                                  const cublasLtMatmulAlgo_t& algorithm, DeviceQueue& queue) const {
  const auto alpha = static_cast<float>(p.alpha);
  const auto beta = static_cast<float>(p.beta);
  const bool wide = p.factors == DType::F64;
  const auto number = [wide](const double& f64, const float& f32) -> const void* {
    if (wide) return &f64;
    return &f32;
  };
  return lt_.matmul(handle_, described.operation.get(), number(p.alpha, alpha), p.a, described.a.get(), p.b,
                    described.b.get(), number(p.beta, beta), c_of(p), described.d.get(), p.d,
                    described.d.get(), &algorithm, queue.workspace(kProductWorkspace), kProductWorkspace,
                    static_cast<cudaStream_t>(queue.native()));
}

// False, with the `status`, if cuBLASLt rejects the algorithm; throws if the multiplication fails.
bool LtEngine::runs(const Product& p, const Described& described, const cublasLtMatmulAlgo_t& algorithm,
                    DeviceQueue& queue, cublasStatus_t& status) const {
  status = multiply(p, described, algorithm, queue);
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return true;
  if (is_rejection(status)) return false;
  fail("cuBLASLt failed while multiplying ({}) on {}: {}", Key(p).text(), device_, lt_.text(status));
}

void LtEngine::must_run(const Product& p, const Described& described, const cublasLtMatmulAlgo_t& algorithm,
                        DeviceQueue& queue) const {
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  if (runs(p, described, algorithm, queue, status)) [[likely]]
    return;
  fail("cuBLASLt rejects the algorithm chosen for a product ({}) on {}: {}", Key(p).text(), device_,
       lt_.text(status));
}

std::vector<cublasLtMatmulAlgo_t> LtEngine::propose(const Product& p, const Described& described,
                                                    int most) const {
  const Preference preference(lt_, p);
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
  int found = 0;
  const cublasStatus_t status =
      lt_.heuristic(handle_, described.operation.get(), described.a.get(), described.b.get(),
                    described.d.get(), described.d.get(), preference.get(), most, results.data(), &found);
  if (is_rejection(status)) return {};
  lt_.check_status(status, "choosing an algorithm");
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < found; ++i)
    if (const auto& result = results[static_cast<size_t>(i)]; result.state == CUBLAS_STATUS_SUCCESS)
      algorithms.push_back(result.algo);
  return algorithms;
}

std::optional<cublasLtMatmulAlgo_t> LtEngine::kept_or_measured(const Product& p, const Described& described,
                                                               const Key& key, DeviceQueue& queue) {
  const std::lock_guard lock(mutex_);
  if (const auto kept = kept_.find(key.text()); kept != kept_.end()) return kept->second;
  if (!measures_) return {};
  const auto algorithm = fastest(p, described, queue);
  if (algorithm) kept_.emplace(key.text(), *algorithm);
  return algorithm;
}

// The fastest of the proposed algorithms that run; a later one only if it is clearly faster.
std::optional<cublasLtMatmulAlgo_t> LtEngine::fastest(const Product& p, const Described& described,
                                                      DeviceQueue& queue) const {
  constexpr double kClearly = 0.99;
  std::optional<cublasLtMatmulAlgo_t> best;
  double least = std::numeric_limits<double>::infinity();
  for (const cublasLtMatmulAlgo_t& algorithm : propose(p, described, kMostMeasured)) {
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (!runs(p, described, algorithm, queue, status)) continue;
    const double seconds = seconds_of(p, described, algorithm, queue);
    if (seconds >= kClearly * least) continue;
    least = seconds;
    best = algorithm;
  }
  return best;
}

// The minimum over several rounds; it has run once before.
double LtEngine::seconds_of(const Product& p, const Described& described,
                            const cublasLtMatmulAlgo_t& algorithm, DeviceQueue& queue) const {
  constexpr int kRounds = 5;
  constexpr int kTimes = 4;  // runs per round: enough to hide launches
  double least = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kRounds; ++round) {
    queue.synchronize();
    const Clock::time_point start = Clock::now();
    for (int time = 0; time < kTimes; ++time) must_run(p, described, algorithm, queue);
    queue.synchronize();
    least = std::min(least, seconds_since(start));
  }
  return least;
}

}  // namespace trifold::cuda::blas
