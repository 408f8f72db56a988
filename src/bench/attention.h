// AttentionCall runs the attention of a configured model for one micro-batch on one tensor rank, for benchmarks. It
// owns its tensors.
#pragma once

#include <vector>

#include "config/fields/config.h"
#include "ops/ops.h"

namespace trifold {

class AttentionCall {
 public:
  // Allocates on the device of `ops`, and fills inputs with zeros. `ops` and `stream` must outlive this object.
  AttentionCall(const OpTable& ops, Stream& stream, const PretrainConfig& run);

  // Makes every sample a sequence of documents that do not attend to each other, `mean` tokens long on average; lengths
  // cycle from half to one and a half times that, and the last document ends with the sample.
  void cut_into_documents(int64_t mean);
  // Limits what each position attends to.
  void look_through(const WindowSize& window);

  const Attention& shape() const { return attention_; }
  void forward();
  void backward();  // after a forward

 private:
  Tensor zeros(DType dtype, const Shape& shape);

  const OpTable& ops_;
  Stream& stream_;
  Attention attention_;
  std::vector<Buffer> memory_;
  std::vector<int32_t> first_keys_;
  Tensor qkv_, dqkv_, out_, dout_, lse_;
};

}  // namespace trifold
