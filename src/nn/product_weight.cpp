#include "nn/product_weight.h"

#include "config/fields/model_config.h"

namespace trifold {

ProductWeight::ProductWeight(BlockBuilder& builder, ParamId id, Cut cut)
    : id_(id), shape_(builder.params()[id].shard.local.extent) {
  const AdapterConfig* adapters = builder.adapters();
  if (adapters == nullptr || adapters->quantize_base == BaseWeights::AsRun || !builder.params()[id].frozen)
    return;
  QuantizedForm form;
  form.type = adapters->quantize_base == BaseWeights::Int8 ? QuantizedType::Int8 : QuantizedType::Nf4;
  form.rows = rows();
  form.columns = columns();
  form.matrix_rows = shape_[shape_.rank() - 2];
  form.along_columns = cut == Cut::Inputs;
  builder.quantize(id, form);
  quantized_ = form;
}

Tensor ProductWeight::read(Run& run) const {
  const Tensor stored = run.weight(id_);
  if (!quantized_) return stored;
  const Tensor values = run.scratch.take(run.dtype, shape_);
  run.ops.dequantize(run.stream, values, stored, *quantized_);
  return values;
}

}  // namespace trifold
