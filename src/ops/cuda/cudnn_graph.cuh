// Graphs of cuDNN's backend interface: tensors and operations on them that cuDNN turns into one fused kernel.
//
// A Graph is built operation by operation, checked, and made into a Plan, which can be executed on any stream
// of the device it was made for. Tensors have four dims; *virtual* ones exist only inside the fused kernel;
// the others have a number (`uid`) under which a Plan is given their address. Descriptors are freed with the
// Graph.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/function_ref.h"

namespace trifold::cuda {

// One backend descriptor, owned.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type);
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }

  cudnnBackendDescriptor_t get() const { return handle_; }
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
           const void* values);
  void set(cudnnBackendAttributeName_t name, const Descriptor& value);
  // Throws with cuDNN's own words.
  void finalize(const char* what);
  // The same as a status, for what may be refused.
  cudnnStatus_t try_finalize();

 private:
  cudnnBackendDescriptor_t handle_ = nullptr;
};

// An operand: which descriptor of its graph it is.
struct Node {
  size_t index = 0;
};

// Where not all of a product's tensors counts: how many of its rows (m), columns (n) and of the numbers that
// it sums (k) do in each sample, by tensors of Graph::per_sample. What its result holds behind them differs
// between versions.
struct Extents {
  std::optional<Node> m, n, k;
};

struct Layout4 {
  int64_t dim[4];
  int64_t stride[4];
};

class Graph {
 public:
  Node tensor(const Layout4& layout, cudnnDataType_t type, int64_t uid);
  Node virtual_tensor(const Layout4& layout, cudnnDataType_t type = CUDNN_DATA_FLOAT);
  // A number of type float that the Plan is given a host pointer to.
  Node scalar(int64_t uid);

  void pointwise(cudnnPointwiseMode_t mode, Node x, Node y, const Node* b = nullptr, const Node* t = nullptr,
                 cudnnDataType_t compute = CUDNN_DATA_FLOAT);
  // y = the index of each element along `axis`.
  void index(Node x, Node y, int64_t axis);
  void matmul(Node a, Node b, Node c, const Extents& extents = {});
  void reduce(cudnnReduceTensorOp_t how, Node x, Node y);
  void reshape(Node x, Node y);
  // y = 1 with this probability, else 0, by Philox from two numbers of type i64 in device memory.
  void bernoulli(double probability, Node seed, Node offset, Node y);
  // One number in device memory.
  Node single(cudnnDataType_t type, int64_t uid);
  // An i32 for each sample in device memory, wherever an i32 may lie.
  Node per_sample(int64_t batch, int64_t uid);

  size_t operations() const { return operations_.size(); }
  // The finished operation graph. `handle` may be null: then it is only described.
  Descriptor finish(cudnnHandle_t handle) const;

 private:
  Node add_tensor(const Layout4& layout, cudnnDataType_t type, bool is_virtual, int64_t uid, bool by_value,
                  int64_t alignment = 16);
  struct Setting {
    cudnnBackendAttributeName_t name;
    Descriptor value;
  };
  struct Operand {
    cudnnBackendAttributeName_t name;
    std::optional<Node> node;
  };
  void add(cudnnBackendDescriptorType_t kind, Setting setting, std::initializer_list<Operand> operands);
  void add_pointwise(Descriptor mode, Node x, Node y, std::optional<Node> b, std::optional<Node> t);
  const Descriptor& at(Node node) const { return tensors_[node.index]; }

  std::vector<Descriptor> tensors_;
  std::vector<Descriptor> settings_;  // what operations refer to
  std::vector<Descriptor> operations_;
  int64_t next_uid_ = 1000;
};

// A device, of this machine (by handle) or one that is only described.
struct Target {
  cudnnHandle_t handle = nullptr;
  const Descriptor* properties = nullptr;
};

// The properties of a device from text as cuDNN writes it (JSON).
Descriptor described_device(const std::string& json);

// What cuDNN says to each engine it proposes for a graph, best first.
struct Verdict {
  cudnnStatus_t status;
  std::string message;
  std::optional<int64_t> workspace;  // bytes it would take
  std::optional<int64_t> engine;     // its number among those for such graphs
};

// A graph made executable by the first engine that takes it.
class Plan {
 public:
  // Throws when no engine takes it; the message holds what cuDNN said to each.
  Plan(const Graph& graph, const Target& target, const char* what);

  int64_t workspace() const { return workspace_; }
  // uids and addresses (device memory, or host memory for scalars) of all tensors that are not virtual.
  void execute(cudnnHandle_t handle, const std::vector<int64_t>& uids, const std::vector<void*>& addresses,
               void* workspace) const;

 private:
  Descriptor plan_;
  int64_t workspace_ = 0;
};

// Calls `see` with the engine configurations that cuDNN's heuristics propose, until it returns false.
std::vector<Verdict> try_engines(const Graph& graph, const Target& target,
                                 FunctionRef<bool(Descriptor& plan, cudnnStatus_t status)> see);

// CUDNN_VERSION of the library that was found.
size_t cudnn_version();
// A handle of the calling thread's current device.
cudnnHandle_t make_handle();
void use_stream(cudnnHandle_t handle, void* stream);

}  // namespace trifold::cuda
