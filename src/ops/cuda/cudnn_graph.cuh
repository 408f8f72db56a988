// Graphs of cuDNN's backend interface: tensors and operations on them that cuDNN turns into one fused kernel.
//
// A Graph is built operation by operation, checked, and made into a Plan, which can be executed on any stream
// of the device it was made for. Tensors have four dims. *Virtual* tensors exist only inside the fused kernel; other
// tensors have a `uid`, by which a Plan receives their addresses. A Graph owns its descriptors.
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

// Owns one backend descriptor.
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
  // Throws with cuDNN's own message.
  void finalize(const char* what);
  // Finalizes a descriptor that cuDNN may reject; returns its status.
  cudnnStatus_t try_finalize();

 private:
  cudnnBackendDescriptor_t handle_ = nullptr;
};

// A tensor of a Graph, as the operand of operations.
struct Node {
  size_t index = 0;
};

// The valid extents of a product in each sample: rows (m), columns (n) and summed elements (k), as tensors of
// Graph::per_sample; none: everything is valid. The rest of the result differs between versions of cuDNN.
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
  // A float in host memory.
  Node scalar(int64_t uid);

  void pointwise(cudnnPointwiseMode_t mode, Node x, Node y, const Node* b = nullptr, const Node* t = nullptr,
                 cudnnDataType_t compute = CUDNN_DATA_FLOAT);
  // y = the index of each element along `axis`.
  void index(Node x, Node y, int64_t axis);
  void matmul(Node a, Node b, Node c, const Extents& extents = {});
  void reduce(cudnnReduceTensorOp_t reduction, Node x, Node y);
  void reshape(Node x, Node y);
  // y = 1 with this probability, otherwise 0, by Philox; seed and offset are i64 [1] in device memory.
  void bernoulli(double probability, Node seed, Node offset, Node y);
  // A scalar in device memory.
  Node single(cudnnDataType_t type, int64_t uid);
  // One i32 per sample in device memory, with the alignment of an i32.
  Node per_sample(int64_t batch, int64_t uid);
  // One i32 per row of each sample in device memory, with the alignment of an i32.
  Node per_row(int64_t batch, int64_t rows, int64_t uid);

  size_t operations() const { return operations_.size(); }
  // The finished operation graph. With a null `handle` it can be checked for described devices only.
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
  std::vector<Descriptor> settings_;  // referred to by operations
  std::vector<Descriptor> operations_;
  int64_t next_uid_ = 1000;
};

// The device of a plan: this machine's (handle), or a described one (properties).
struct Target {
  cudnnHandle_t handle = nullptr;
  const Descriptor* properties = nullptr;
};

// The properties of a device, from cuDNN's JSON form.
Descriptor described_device(const std::string& json);

// cuDNN's verdict on each engine that it proposes for a graph, best first.
struct Verdict {
  cudnnStatus_t status;
  std::string message;
  std::optional<int64_t> workspace;  // bytes that the engine needs
  std::optional<int64_t> engine;     // its number among the engines for such graphs
};

// A graph made executable by the first engine that accepts it.
class Plan {
 public:
  // Throws if no engine accepts it; the message contains cuDNN's verdict on each.
  Plan(const Graph& graph, const Target& target, const char* what);

  int64_t workspace() const { return workspace_; }
  // Takes uids and addresses of all tensors that are not virtual.
  void execute(cudnnHandle_t handle, const std::vector<int64_t>& uids, const std::vector<void*>& addresses,
               void* workspace) const;

 private:
  Descriptor plan_;
  int64_t workspace_ = 0;
};

// Calls `see` with the engine configurations that cuDNN's heuristics propose, until it returns false. Returns the
// verdicts so far.
std::vector<Verdict> try_engines(const Graph& graph, const Target& target,
                                 FunctionRef<bool(Descriptor& plan, cudnnStatus_t status)> see);

// CUDNN_VERSION of the library that was found.
size_t cudnn_version();
// Creates a handle for the calling thread's current device.
cudnnHandle_t make_handle();
void use_stream(cudnnHandle_t handle, void* stream);

}  // namespace trifold::cuda
