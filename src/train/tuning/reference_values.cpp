#include "train/tuning/reference_values.h"

#include <cstring>
#include <filesystem>
#include <span>
#include <utility>

#include "core/random.h"
#include "files/crc32.h"
#include "files/npy_file.h"
#include "files/output_files.h"
#include "models/folders/open_model.h"
#include "nn/samples/sample_loss.h"
#include "ops/host_copy.h"
#include "run/ranks.h"
#include "train/evaluation.h"

namespace trifold {

namespace {

// Collects the log-likelihoods while samples are computed: one object for each rank.
class SampleLikelihoods final : public StepWatch {
 public:
  SampleLikelihoods(Replica& replica, int64_t samples)
      : replica_(replica), values_(static_cast<size_t>(samples), 0.0) {}

  void begin(const Action&, int, const Batch& batch, const ParamSource&, Stream&) override {
    first_ = batch.first_sample;
  }
  void end(Stream&) override {}

  // Every sample is kept by one rank, the first of the tensor and context ranks that have it.
  void see(std::string_view, std::string_view what, Tensor sums, Stream& stream) override {
    const Mesh& mesh = replica_.mesh();
    if (what != SampleLoss::kSums || mesh.coord(Axis::Tp) != 0 || mesh.coord(Axis::Cp) != 0) return;
    const HostCopy copy(replica_.ops(), stream, sums);
    for (int64_t i = 0; i < sums.elements() && first_ + i < std::ssize(values_); ++i)  // the rest is padding
      values_[static_cast<size_t>(first_ + i)] = -copy.tensor().as<double>()[i];
  }

  // The values of all ranks, to be called after the last sample. Collective.
  std::vector<double> gather() {
    Stream host = replica_.compute().host();
    replica_.world().all_reduce({values_.data(), DType::F64, {std::ssize(values_)}}, Reduce::Sum, host);
    return std::move(values_);
  }

 private:
  Replica& replica_;
  int64_t first_ = 0;
  std::vector<double> values_;  // [sample]
};

double checksum_of(std::span<const double> values) { return crc32_of(0, values.data(), values.size_bytes()); }

// The log-likelihoods in the file, behind which it has their checksum; empty if there is no file.
std::vector<double> read_values(const std::string& path, int64_t count) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return {};
  NpyFile file(path);
  std::vector<double> values(static_cast<size_t>(count) + 1);
  const std::vector<int64_t> shape{count + 1};
  const bool fits = file.shape() == shape && file.header().row_bytes() == sizeof(double) &&
                    file.header().visit(reinterpret_cast<const std::byte*>(values.data()),
                                        [](auto value) { return std::is_same_v<decltype(value), double>; });
  if (!fits)
    bad_input(
        "{} holds {} numbers of {} bytes instead of {} log-likelihoods and their checksum in f64: remove it",
        path, file.shape_text(), file.header().number_bytes(), count);
  std::memcpy(values.data(), file.next(count + 1).data(), values.size() * sizeof(double));
  const double stored = values.back();
  values.pop_back();
  if (stored != checksum_of(values))
    bad_input("{} is damaged: its log-likelihoods do not have its checksum; remove it", path);
  return values;
}

void write_values(const std::string& path, std::vector<double> values) {
  values.push_back(checksum_of(values));
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  write_file("--dpo-reference-folder", path, npy_content(values));
}

// The values that the first rank has read, on all ranks; empty if it has none.
std::vector<double> read_on_first(Communicator& world, const std::optional<std::string>& file,
                                  int64_t count) {
  if (!file) return {};
  std::vector<double> values;
  if (world.rank() == 0) values = read_values(*file, count);
  double found = values.empty() ? 0 : 1;
  ThreadPool pool(1);
  Stream host(Stream::Mode::Inline, pool);
  world.broadcast({&found, DType::F64, {1}}, 0, host);
  if (found == 0) return {};
  values.resize(static_cast<size_t>(count));
  world.broadcast({values.data(), DType::F64, {count}}, 0, host);
  return values;
}

// Quantizes the reference's weights as the adapters' frozen weights are: both then compute the same before training.
void hold_base_alike(const AdapterConfig& tuned, ReferenceModel& reference) {
  AdapterConfig& own = reference.model.adapters;
  const BaseWeights held = tuned.quantize_base;
  if (!tuned.lora_rank || (!own.lora_rank && held == BaseWeights::AsRun)) return;
  if (!own.lora_rank) {
    own.lora_rank = 1;  // only frozen weights are quantized; nothing loads these adapters, which stay zero
    reference.frozen_only = true;
  }
  own.quantize_base = held;
  if (held != BaseWeights::AsRun) reference.identity += fmt::format(" with a base in {}", name_of(held));
}

}  // namespace

ReferenceModel reference_model(const std::string& path, const ModelConfig& tuned, DType dtype) {
  const CheckpointReader reader = open_weights(path);
  CheckpointModel from;
  from.model = language_model_of(reader);
  from.directory = reader.directory().string();
  expect_text_model(from);
  if (from.model.vocab_size != tuned.vocab_size)
    bad_input("the reference model {} has {} tokens, the model that is trained {}: they must be equal", path,
              *from.model.vocab_size, *tuned.vocab_size);
  set_length(from, tuned.seq_length);
  ReferenceModel reference{path, from.model, dtype, {}, false};
  reference.model.pair_loss = tuned.pair_loss;
  reference.identity = fmt::format("{} in {}", reader.manifest().save_id, name_of(dtype));
  hold_base_alike(tuned.adapters, reference);
  return reference;
}

std::string reference_file(const std::string& folder, const ReferenceModel& reference,
                           const std::string& samples) {
  // The first number counts the forms of the file: files without a checksum have other names.
  const PhiloxKey key = philox_key(1, samples + " of " + reference.identity);
  return fmt::format("{}/reference-{:08x}{:08x}.npy", folder, key.hi, key.lo);
}

std::optional<std::vector<double>> reference_values(Communicator& world, const MeshConfig& mesh,
                                                    const ZeroConfig& zero, const PrecisionConfig& precision,
                                                    const ReferenceModel& reference, const DataSource& source,
                                                    int64_t micro_batch_size,
                                                    const std::optional<std::string>& file,
                                                    const std::atomic<int>* signal) {
  std::optional<std::vector<double>> values;
  abort_on_error(world, [&] {
    values = read_on_first(world, file, source.samples());
    if (!values->empty()) return;
    values.reset();
    Replica replica(world, mesh, reference.model, reference.dtype, 0, {}, zero, {}, precision);
    if (reference.frozen_only)
      load_frozen_weights(replica, reference.path);
    else
      load_weights(replica, reference.path);
    SampleLikelihoods likelihoods(replica, source.samples());
    if (!evaluate_model(replica, source, micro_batch_size, source.samples(), false, &likelihoods, signal))
      return;
    values = likelihoods.gather();
    if (file && world.rank() == 0) write_values(*file, *values);
  });
  return values;
}

}  // namespace trifold
