#include "ops/cuda/cudnn_graph.cuh"

#include <array>

#include "core/cuda/library.h"
#include "core/error.h"

namespace trifold::cuda {

namespace {

struct Cudnn {
  Library library{"libcudnn.so.9", "cuDNN"};
  decltype(cudnnGetVersion)* version;
  decltype(cudnnCreate)* create;
  decltype(cudnnSetStream)* set_stream;
  decltype(cudnnGetErrorString)* text;
  decltype(cudnnGetLastErrorString)* last_text;
  decltype(cudnnBackendCreateDescriptor)* make;
  decltype(cudnnBackendDestroyDescriptor)* destroy;
  decltype(cudnnBackendSetAttribute)* set;
  decltype(cudnnBackendGetAttribute)* get;
  decltype(cudnnBackendFinalize)* finalize;
  decltype(cudnnBackendExecute)* execute;

  Cudnn() {
    library.find("cudnnGetVersion", &version);
    library.find("cudnnCreate", &create);
    library.find("cudnnSetStream", &set_stream);
    library.find("cudnnGetErrorString", &text);
    library.find("cudnnGetLastErrorString", &last_text);
    library.find("cudnnBackendCreateDescriptor", &make);
    library.find("cudnnBackendDestroyDescriptor", &destroy);
    library.find("cudnnBackendSetAttribute", &set);
    library.find("cudnnBackendGetAttribute", &get);
    library.find("cudnnBackendFinalize", &finalize);
    library.find("cudnnBackendExecute", &execute);
  }

  std::string why(cudnnStatus_t status) const {
    std::array<char, 1024> last{};
    last_text(last.data(), last.size());
    return fmt::format("{} {}", text(status), last.data());
  }
};

const Cudnn& cudnn() {
  static const Cudnn kCudnn;
  return kCudnn;
}

void check_status(cudnnStatus_t status, const char* what) {
  if (status != CUDNN_STATUS_SUCCESS) fail("cuDNN failed while {}: {}", what, cudnn().why(status));
}

}  // namespace

size_t cudnn_version() { return cudnn().version(); }

cudnnHandle_t make_handle() {
  cudnnHandle_t handle = nullptr;
  check_status(cudnn().create(&handle), "starting");
  return handle;
}

void use_stream(cudnnHandle_t handle, void* stream) {
  check_status(cudnn().set_stream(handle, static_cast<cudaStream_t>(stream)), "choosing a stream");
}

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
  check_status(cudnn().make(type, &handle_), "making a descriptor");
}

Descriptor::~Descriptor() {
  if (handle_ != nullptr) cudnn().destroy(handle_);
}

void Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                     const void* values) {
  check_status(cudnn().set(handle_, name, type, count, values), "describing a graph");
}

void Descriptor::set(cudnnBackendAttributeName_t name, const Descriptor& value) {
  const cudnnBackendDescriptor_t handle = value.get();
  set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, static_cast<const void*>(&handle));
}

void Descriptor::finalize(const char* what) { check_status(try_finalize(), what); }

cudnnStatus_t Descriptor::try_finalize() { return cudnn().finalize(handle_); }

// ---- Graph ----

Node Graph::add_tensor(const Layout4& layout, cudnnDataType_t type, bool is_virtual, int64_t uid,
                       bool by_value, int64_t alignment) {
  Descriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
  tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, layout.dim);
  tensor.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, layout.stride);
  tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
  tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
  tensor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
  if (by_value) tensor.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
  tensor.finalize("describing a tensor");
  tensors_.push_back(std::move(tensor));
  return {tensors_.size() - 1};
}

Node Graph::tensor(const Layout4& layout, cudnnDataType_t type, int64_t uid) {
  return add_tensor(layout, type, false, uid, false);
}

Node Graph::virtual_tensor(const Layout4& layout, cudnnDataType_t type) {
  return add_tensor(layout, type, true, next_uid_++, false);
}

Node Graph::scalar(int64_t uid) {
  return add_tensor({{1, 1, 1, 1}, {1, 1, 1, 1}}, CUDNN_DATA_FLOAT, false, uid, true);
}

// Adds an operation of this kind, with its settings and its tensors.
void Graph::add(cudnnBackendDescriptorType_t kind, Setting setting, std::initializer_list<Operand> operands) {
  setting.value.finalize("describing an operation");
  Descriptor operation(kind);
  operation.set(setting.name, setting.value);
  for (const Operand& operand : operands)
    if (operand.node) operation.set(operand.name, at(*operand.node));
  operation.finalize("describing an operation");
  settings_.push_back(std::move(setting.value));
  operations_.push_back(std::move(operation));
}

void Graph::add_pointwise(Descriptor mode, Node x, Node y, std::optional<Node> b, std::optional<Node> t) {
  add(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
      {CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, std::move(mode)},
      {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x},
       {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b},
       {CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t},
       {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y}});
}

void Graph::pointwise(cudnnPointwiseMode_t mode, Node x, Node y, const Node* b, const Node* t,
                      cudnnDataType_t compute) {
  Descriptor setting(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  setting.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  setting.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  const auto given = [](const Node* node) { return node == nullptr ? std::nullopt : std::optional(*node); };
  add_pointwise(std::move(setting), x, y, given(b), given(t));
}

void Graph::index(Node x, Node y, int64_t axis) {
  static const cudnnPointwiseMode_t kMode = CUDNN_POINTWISE_GEN_INDEX;
  static const cudnnDataType_t kCompute = CUDNN_DATA_FLOAT;
  Descriptor setting(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  setting.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &kMode);
  setting.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &kCompute);
  setting.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
  add_pointwise(std::move(setting), x, y, {}, {});
}

void Graph::matmul(Node a, Node b, Node c, const Extents& extents) {
  static const cudnnDataType_t kCompute = CUDNN_DATA_FLOAT;
  Descriptor setting(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  setting.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &kCompute);
  add(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, {CUDNN_ATTR_OPERATION_MATMUL_DESC, std::move(setting)},
      {{CUDNN_ATTR_OPERATION_MATMUL_ADESC, a},
       {CUDNN_ATTR_OPERATION_MATMUL_BDESC, b},
       {CUDNN_ATTR_OPERATION_MATMUL_CDESC, c},
       {CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, extents.m},
       {CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, extents.n},
       {CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, extents.k}});
}

void Graph::reduce(cudnnReduceTensorOp_t reduction, Node x, Node y) {
  static const cudnnDataType_t kCompute = CUDNN_DATA_FLOAT;
  Descriptor setting(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  setting.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &reduction);
  setting.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &kCompute);
  add(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, {CUDNN_ATTR_OPERATION_REDUCTION_DESC, std::move(setting)},
      {{CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x}, {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y}});
}

void Graph::reshape(Node x, Node y) {
  Descriptor operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, at(x));
  operation.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, at(y));
  operation.finalize("describing a change of shape");
  operations_.push_back(std::move(operation));
}

Node Graph::single(cudnnDataType_t type, int64_t uid) {
  return add_tensor({{1, 1, 1, 1}, {1, 1, 1, 1}}, type, false, uid, false);
}

Node Graph::per_sample(int64_t batch, int64_t uid) {
  return add_tensor({{batch, 1, 1, 1}, {1, 1, 1, 1}}, CUDNN_DATA_INT32, false, uid, false, sizeof(int32_t));
}

Node Graph::per_row(int64_t batch, int64_t rows, int64_t uid) {
  return add_tensor({{batch, 1, rows, 1}, {rows, rows, 1, 1}}, CUDNN_DATA_INT32, false, uid, false,
                    sizeof(int32_t));
}

void Graph::bernoulli(double probability, Node seed, Node offset, Node y) {
  static const cudnnRngDistribution_t kDistribution = CUDNN_RNG_DISTRIBUTION_BERNOULLI;
  Descriptor setting(CUDNN_BACKEND_RNG_DESCRIPTOR);
  setting.set(CUDNN_ATTR_RNG_DISTRIBUTION, CUDNN_TYPE_RNG_DISTRIBUTION, 1, &kDistribution);
  setting.set(CUDNN_ATTR_RNG_BERNOULLI_DIST_PROBABILITY, CUDNN_TYPE_DOUBLE, 1, &probability);
  add(CUDNN_BACKEND_OPERATION_RNG_DESCRIPTOR, {CUDNN_ATTR_OPERATION_RNG_DESC, std::move(setting)},
      {{CUDNN_ATTR_OPERATION_RNG_YDESC, y},
       {CUDNN_ATTR_OPERATION_RNG_SEED, seed},
       {CUDNN_ATTR_OPERATION_RNG_OFFSET_DESC, offset}});
}

Descriptor Graph::finish(cudnnHandle_t handle) const {
  std::vector<cudnnBackendDescriptor_t> list;
  for (const Descriptor& operation : operations_) list.push_back(operation.get());
  Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(list.size()),
            static_cast<const void*>(list.data()));
  if (handle != nullptr)
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, static_cast<const void*>(&handle));
  graph.finalize("describing a graph");
  return graph;
}

// ---- plans ----

Descriptor described_device(const std::string& json) {
  Descriptor properties(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  properties.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                 static_cast<int64_t>(json.size()), json.data());
  properties.finalize("describing a device");
  return properties;
}

namespace {

// The workspace that an engine reports; older libraries do not report it.
std::optional<int64_t> workspace_of(const Descriptor& engine) {
  int64_t bytes = 0;
  int64_t count = 0;
  const cudnnStatus_t status =
      cudnn().get(engine.get(), CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, &bytes);
  if (status != CUDNN_STATUS_SUCCESS) return std::nullopt;
  return bytes;
}

std::optional<int64_t> number_of(const Descriptor& configuration) {
  const Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t handle = engine.get();
  int64_t number = 0;
  int64_t count = 0;
  if (cudnn().get(configuration.get(), CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                  static_cast<void*>(&handle)) != CUDNN_STATUS_SUCCESS ||
      cudnn().get(handle, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, &number) !=
          CUDNN_STATUS_SUCCESS)
    return std::nullopt;
  return number;
}

std::vector<Descriptor> engines_for(const Descriptor& graph, const Target& target) {
  static const cudnnBackendHeurMode_t kMode = CUDNN_HEUR_MODE_A;
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &kMode);
  if (target.properties != nullptr) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.properties);
  heuristics.finalize("asking for engines");
  int64_t count = 0;
  check_status(cudnn().get(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0,
                           &count, nullptr),
               "asking for engines");
  std::vector<Descriptor> engines;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (int64_t i = 0; i < count; ++i) {
    engines.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    handles.push_back(engines.back().get());
  }
  int64_t found = 0;
  check_status(cudnn().get(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                           count, &found, static_cast<void*>(handles.data())),
               "asking for engines");
  while (static_cast<int64_t>(engines.size()) > found) engines.pop_back();
  return engines;
}

}  // namespace

std::vector<Verdict> try_engines(const Graph& graph, const Target& target,
                                 FunctionRef<bool(Descriptor& plan, cudnnStatus_t status)> see) {
  const Descriptor described = graph.finish(target.handle);
  std::vector<Verdict> verdicts;
  for (const Descriptor& engine : engines_for(described, target)) {
    Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine);
    if (target.handle != nullptr)
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
               static_cast<const void*>(&target.handle));
    if (target.properties != nullptr) plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target.properties);
    const cudnnStatus_t status = plan.try_finalize();
    verdicts.push_back({status, status == CUDNN_STATUS_SUCCESS ? "" : cudnn().why(status),
                        workspace_of(engine), number_of(engine)});
    if (!see(plan, status)) break;
  }
  return verdicts;
}

Plan::Plan(const Graph& graph, const Target& target, const char* what)
    : plan_(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
  bool found = false;
  const auto verdicts = try_engines(graph, target, [&](Descriptor& plan, cudnnStatus_t status) {
    if (status != CUDNN_STATUS_SUCCESS) return true;
    plan_ = std::move(plan);
    found = true;
    return false;
  });
  if (!found) {
    std::string said;
    for (const Verdict& verdict : verdicts) said += "\n  " + verdict.message;
    fail("cuDNN has no engine for {}; its message:{}", what, said.empty() ? " nothing" : said);
  }
  int64_t count = 0;
  check_status(cudnn().get(plan_.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                           &workspace_),
               "asking for a workspace's size");
}

void Plan::execute(cudnnHandle_t handle, const std::vector<int64_t>& uids,
                   const std::vector<void*>& addresses, void* workspace) const {
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  const auto count = static_cast<int64_t>(uids.size());
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, uids.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count,
           static_cast<const void*>(addresses.data()));
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, static_cast<const void*>(&workspace));
  pack.finalize("describing a call");
  check_status(cudnn().execute(handle, plan_.get(), pack.get()), "computing");
}

}  // namespace trifold::cuda
