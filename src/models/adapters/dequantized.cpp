#include "models/adapters/dequantized.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/convert_floats.h"
#include "checkpoint/tensor_kind.h"
#include "mesh/mesh.h"
#include "models/language_model.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;

// The forms of a model's quantized weights, whole, by their names in checkpoints.
std::map<std::string, QuantizedForm> quantized_forms(const ModelConfig& config) {
  std::map<std::string, QuantizedForm> forms;
  const Model model = make_model(config, Mesh(MeshSizes(), MeshCoords()), 0);
  for (const ParamSpec& spec : model.params.specs())
    if (spec.quantized) forms[fmt::format("{}/{}", kWeightKind, spec.shard.name)] = *spec.quantized;
  return forms;
}

class DequantizedSource final : public TensorSource {
 public:
  DequantizedSource(CheckpointReader from, std::map<std::string, QuantizedForm> forms)
      : from_(std::move(from)), forms_(std::move(forms)) {}

  void read(std::span<const NamedTensor> wanted) override {
    std::vector<NamedTensor> plain;
    for (const NamedTensor& tensor : wanted) {
      const auto found = forms_.find(tensor.spec.name);
      if (found == forms_.end())
        plain.push_back(tensor);
      else if (tensor.data.elements() > 0)
        read_box(tensor, found->second);
    }
    from_.load(plain, FloatConversion::Allow);
  }

 private:
  // Reads a box as matrices of its last two dims, one for each index of the dims before.
  void read_box(const NamedTensor& box, const QuantizedForm& form) {
    const Rect& local = box.spec.local;
    const int rank = local.extent.rank();
    const int64_t rows = local.extent[rank - 2];
    const int64_t elements = rows * local.extent[rank - 1];
    for (int64_t matrix = 0; matrix < local.elements() / elements; ++matrix) {
      Rect part = local;
      int64_t row = 0, rest = matrix, scale = form.matrix_rows;
      for (int dim = rank - 3; dim >= 0; --dim) {
        part.offset[dim] += rest % local.extent[dim];
        part.extent[dim] = 1;
        row += part.offset[dim] * scale;
        rest /= local.extent[dim];
        scale *= box.spec.global[dim];
      }
      read_rows(box, form, part, row + local.offset[rank - 2],
                box.data.flat().rows(matrix * elements, (matrix + 1) * elements));
    }
  }

  // Rows of one matrix, from row `first` of all on: band by band, with all columns of their blocks.
  void read_rows(const NamedTensor& box, const QuantizedForm& form, const Rect& part, int64_t first,
                 Tensor to) {
    const int rank = part.extent.rank();
    const int64_t columns = part.extent[rank - 1], end = first + part.extent[rank - 2];
    const int64_t start = part.offset[rank - 2] - first;  // from rows of all to rows of the matrix
    QuantizedForm width = form;
    NamedTensor wanted;
    wanted.spec.name = box.spec.name;
    wanted.spec.global = box.spec.global;
    wanted.spec.local = part;
    int64_t skipped = part.offset[rank - 1];
    if (form.along_columns) {
      width.columns = columns;
      skipped = 0;
    } else {
      wanted.spec.local.offset[rank - 1] = 0;
      wanted.spec.local.extent[rank - 1] = form.columns;
    }
    for (int64_t row = first; row < end;) {
      const int64_t begin = form.along_columns ? band_begin(form, row) : row;
      const int64_t last = form.along_columns ? form.band_end(begin) : std::min(end, row + kQuantizedBlock);
      wanted.spec.local.offset[rank - 2] = begin + start;
      wanted.spec.local.extent[rank - 2] = last - begin;
      read_band(wanted, width, last - begin);
      for (; row < std::min(last, end); ++row)
        convert_floats(
            static_cast<std::byte*>(to.data) +
                static_cast<size_t>((row - first) * columns) * size_of(to.dtype),
            to.dtype,
            reinterpret_cast<const std::byte*>(values_.data() + (row - begin) * width.columns + skipped),
            DType::F32, columns);
    }
  }

  static int64_t band_begin(const QuantizedForm& form, int64_t row) {
    return row - row % form.matrix_rows % kQuantizedBlock;
  }

  // Reads rows whose blocks are whole to values_, and rounds them to the codes.
  void read_band(NamedTensor& wanted, const QuantizedForm& form, int64_t rows) {
    QuantizedForm band = form;
    band.rows = band.matrix_rows = rows;
    values_.resize(static_cast<size_t>(rows * band.columns));
    codes_.resize(static_cast<size_t>(band.code_bytes()));
    scales_.resize(static_cast<size_t>(band.scales()));
    wanted.data = {values_.data(), DType::F32, wanted.spec.local.extent};
    from_.load({&wanted, 1}, FloatConversion::Allow);
    quantize_band(band, 0, values_, codes_, scales_);
    dequantize_band(band, 0, codes_, scales_, values_);
  }

  CheckpointReader from_;
  std::map<std::string, QuantizedForm> forms_;
  std::vector<float> values_;
  std::vector<uint8_t> codes_;
  std::vector<uint16_t> scales_;
};

}  // namespace

CheckpointReader dequantized(CheckpointReader from, const ModelConfig& model) {
  if (model.adapters.quantize_base == BaseWeights::AsRun) return from;
  std::map<std::string, QuantizedForm> forms = quantized_forms(model);
  Manifest manifest = from.manifest();
  for (TensorInfo& tensor : manifest.tensors) tensor.pieces.clear();
  fs::path directory = from.directory(), attachments = from.attachments();
  return CheckpointReader(std::move(directory), std::move(manifest),
                          std::make_shared<DequantizedSource>(std::move(from), std::move(forms)),
                          std::move(attachments));
}

}  // namespace trifold
