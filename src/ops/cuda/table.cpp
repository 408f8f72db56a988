// The CUDA table: each entry enqueues launches.
#include "ops/cuda/table.h"

#include "ops/contract.h"
#include "ops/cuda/attention.h"
#include "ops/cuda/entries.h"

namespace trifold::cuda {

namespace {

// Copies between any two of device, shared and host memory.
void copy(Stream& stream, Tensor y, Tensor x) {
  stream.enqueue([queue = stream.queue(), to = y.data, from = x.data, bytes = x.bytes()] {
    queue->copy(to, from, bytes);
  });
}

}  // namespace

template <F32Products Precision>
const OpTable& raw_ops() {
  static const OpTable kTable = [] {
    OpTable ops{};
    ops.name = "cuda";
    ops.copy = copy;
    add_elementwise(ops);
    add_rows(ops);
    add_optimizer(ops);
    add_recommender(ops);
    add_experts(ops);
    add_latent(ops);
    add_strided(ops);
    add_products(ops, Precision);
    add_attention(ops);
    return ops;
  }();
  return kTable;
}
template const OpTable& raw_ops<F32Products::Exact>();
template const OpTable& raw_ops<F32Products::Tf32>();

OpTable make_table(Device* device, F32Products f32) {
  OpTable ops = f32 == F32Products::Tf32 ? with_contract<raw_ops<F32Products::Tf32>>()
                                         : with_contract<raw_ops<F32Products::Exact>>();
  ops.device = device;
  return ops;
}

}  // namespace trifold::cuda
