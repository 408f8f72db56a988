#include "launch/faults/fault_test.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "checkpoint/tensor_kind.h"
#include "core/clock.h"
#include "core/error.h"
#include "files/file.h"
#include "mesh/mesh_sizes.h"

namespace trifold::launch {

namespace {

constexpr const char* kVariable = "TRIFOLD_TEST_FAULT";

struct Spec {
  int rank = 0;
  std::string kind;
  std::string phase;
  int64_t step = 1;
  std::string tensor;
  int64_t seconds = 0;  // slow-fsync

  bool changes_state() const { return kind == "flip" || kind == "nan-weight" || kind == "nan-moment"; }
};

std::vector<std::string> fields_of(std::string_view text) {
  std::vector<std::string> fields;
  while (true) {
    const size_t colon = text.find(':');
    fields.emplace_back(text.substr(0, colon));
    if (colon == std::string_view::npos) return fields;
    text.remove_prefix(colon + 1);
  }
}

bool is_one_of(const std::string& name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Spec parse(const char* text) {
  const std::vector<std::string> fields = fields_of(text);
  const auto number = [&](size_t at, auto& value) {
    const std::string& field = fields[at];
    if (std::from_chars(field.data(), field.data() + field.size(), value).ptr != field.data() + field.size())
      bad_input("{}={}: '{}' is not a number", kVariable, text, field);
  };
  if (fields.size() < 3) bad_input("{}={}: RANK:KIND:PHASE[:STEP[:TENSOR]] is expected", kVariable, text);
  Spec spec;
  number(0, spec.rank);
  spec.kind = fields[1];
  spec.phase = fields[2];
  if (fields.size() > 3) number(3, spec.step);
  if (fields.size() > 4) spec.tensor = fields[4];
  const bool is_slow = spec.kind == "slow-fsync";
  if (!spec.changes_state() && !is_slow && !is_one_of(spec.kind, {"kill", "stop", "hang", "error", "slow"}))
    bad_input("{}={}: there is no fault '{}'", kVariable, text, spec.kind);
  bool in_save = false;
  for (const SavePhase phase : save_phases()) in_save = in_save || name_of(phase) == spec.phase;
  const bool known =
      in_save || is_one_of(spec.phase, {"start", "data", "load", "begin", "forward", "tensor", "backward",
                                        "pipeline", "reduce", "update", "evaluate", "save"});
  if (is_slow && (!in_save || fields.size() != 5))
    bad_input("{}={}: slow-fsync needs a phase of a save, and seconds at the end", kVariable, text);
  if (is_slow) number(4, spec.seconds);
  if (!known) bad_input("{}={}: there is no phase '{}'", kVariable, text, spec.phase);
  if (spec.changes_state() && !is_one_of(spec.phase, {"begin", "update", "evaluate", "save"}))
    bad_input("{}={}: weights change at begin, update, evaluate or save", kVariable, text);
  return spec;
}

[[noreturn]] void wait_for_ever() {
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

// Additional duration of the calling thread's next fsync.
thread_local int64_t fsync_delay = 0;

int slow_fsync(int file) {
  if (const int64_t seconds = std::exchange(fsync_delay, 0); seconds > 0)
    std::this_thread::sleep_for(std::chrono::seconds(seconds));
  return ::fsync(file);
}

void fail_as(const Spec& spec) {
  if (spec.kind == "slow-fsync") fsync_delay = spec.seconds;
  if (spec.kind == "kill") std::raise(SIGKILL);
  if (spec.kind == "stop") std::raise(SIGSTOP);
  if (spec.kind == "hang") wait_for_ever();
  if (spec.kind == "error") fail("a fault requested by a test, in {}", spec.phase);
}

template <class T, class Bits>
void change(const Tensor& values, bool flip) {
  T* const at = values.as<T>() + values.elements() / 2;
  if (!flip) return void(*at = std::numeric_limits<T>::quiet_NaN());
  Bits bits;
  std::memcpy(&bits, at, sizeof(bits));
  bits ^= Bits{1} << (8 * sizeof(Bits) - 12);  // a bit of the mantissa
  std::memcpy(at, &bits, sizeof(bits));
}

void change(const Tensor& values, bool flip) {
  if (values.dtype == DType::F64) return change<double, uint64_t>(values, flip);
  change<float, uint32_t>(values, flip);
}

// Changes an element of the tensor's middle row.
void change_stored(const NamedTensor& tensor, bool flip) {
  const Buffer memory(tensor.row_bytes());
  const int64_t row = tensor.spec.local.extent[0] / 2;
  tensor.stored->read(row, 1, memory.data());
  const auto elements = static_cast<int64_t>(memory.bytes() / size_of(tensor.data.dtype));
  change(memory.tensor(tensor.data.dtype, {elements}), flip);
  tensor.stored->write(row, 1, memory.data());
}

void change_state(const Spec& spec, Savable& state) {
  const bool weight = spec.kind != "nan-moment";
  for (const NamedTensor& tensor : state.held_tensors()) {
    const std::string& name = tensor.spec.name;
    if (is_weight(name) != weight || tensor.data.elements() == 0) continue;
    if (name.find(spec.tensor, name.find('/')) == std::string::npos) continue;
    if (tensor.stored != nullptr) return change_stored(tensor, spec.kind == "flip");
    return change(tensor.data, spec.kind == "flip");
  }
  bad_input("{}: rank {} holds no such tensor", kVariable, spec.rank);
}

// The blocks and messages of the rank that fails.
class Watch final : public StepWatch {
 public:
  explicit Watch(const Spec& spec) : spec_(spec) {}

  void set_step(int64_t step) { step_ = step; }

  void begin(const Action& action, int, const Batch&, const ParamSource&, Stream&) override {
    forward_ = action.kind == ActionKind::F;
    begun_ = Clock::now();
    if (spec_.phase == "forward" && forward_) reach();
    if (spec_.phase == "backward" && (action.kind == ActionKind::B || action.kind == ActionKind::I)) reach();
  }
  void see(std::string_view, std::string_view, Tensor, Stream&) override {
    if (spec_.phase == "tensor" && forward_) reach();
  }
  void end(Stream&) override {
    if (spec_.kind == "slow" && step_ >= spec_.step) std::this_thread::sleep_for(Clock::now() - begun_);
  }
  void after(const Action& action) override {
    if (spec_.phase == "pipeline" && is_message(action.kind)) reach();
    if (spec_.phase == "reduce" && action.kind == ActionKind::ReduceGrad) reach();
  }

 private:
  void reach() const {
    if (step_ == spec_.step) fail_as(spec_);
  }

  const Spec& spec_;
  int64_t step_ = 0;
  bool forward_ = false;
  Clock::time_point begun_;
};

// Fails when it reads samples of one position on the data axis.
class FaultyData final : public DataSource {
 public:
  FaultyData(std::unique_ptr<DataSource> inner, const Spec& spec, const PretrainConfig& config)
      : inner_(std::move(inner)),
        spec_(spec),
        micro_batch_(config.batch.micro_batch_size),
        global_batch_(*config.batch.global_batch_size),
        place_(coords_of(spec.rank, mesh_sizes(config.mesh))[Axis::Dp]),
        places_(mesh_sizes(config.mesh)[Axis::Dp]) {}

  int64_t seq_length() const override { return inner_->seq_length(); }
  int64_t samples() const override { return inner_->samples(); }
  bool separates_documents() const override { return inner_->separates_documents(); }
  void read(Batch& batch, int64_t first_sample) const override {
    if (first_sample / global_batch_ + 1 == spec_.step && first_sample / micro_batch_ % places_ == place_)
      fail_as(spec_);
    inner_->read(batch, first_sample);
  }
  std::string bookmark(int64_t sample) const override { return inner_->bookmark(sample); }
  void open_at(const std::string& bookmark) const override { inner_->open_at(bookmark); }

 private:
  std::unique_ptr<DataSource> inner_;
  const Spec& spec_;
  int64_t micro_batch_, global_batch_;
  int64_t place_, places_;
};

// Fails when it reads the rank's first sample in a global batch of the first epoch.
class FaultyClicks final : public ClickSource {
 public:
  FaultyClicks(const ClickSource& inner, const Spec& spec, const RecommendConfig& config)
      : inner_(inner), spec_(spec) {
    const int64_t batch = config.training.global_batch_size;
    const int64_t share = (batch + config.mesh.ranks - 1) / config.mesh.ranks;
    ClickOrder(inner.samples(), config.seed)
        .positions(0, (spec.step - 1) * batch + spec.rank * share, {&position_, 1});
  }

  const ClickSchema& schema() const override { return inner_.schema(); }
  int64_t samples() const override { return inner_.samples(); }
  void fill(std::span<const int64_t> positions, ClickPart& out) const override {
    if (std::find(positions.begin(), positions.end(), position_) != positions.end()) fail_as(spec_);
    inner_.fill(positions, out);
  }

 private:
  const ClickSource& inner_;
  const Spec& spec_;
  int64_t position_ = 0;
};

class ChosenFault final : public Fault {
 public:
  explicit ChosenFault(Spec spec) : spec_(std::move(spec)), watch_(spec_) {}

  void at_start(std::optional<int> rank) override {
    if (rank == spec_.rank && spec_.phase == "start") fail_as(spec_);
  }

  void attach(PretrainJob& job) override {
    watch(job);
    if (spec_.phase == "data")
      job.train = std::make_unique<FaultyData>(std::move(job.train), spec_, job.config);
  }

  void attach(RecommendJob& job) override {
    watch(job);
    if (spec_.phase != "data") return;
    job.data.owned.push_back(std::make_unique<FaultyClicks>(*job.data.train, spec_, job.config));
    job.data.train = job.data.owned.back().get();
  }

  void reach(RunPart part, int rank, Savable& state) override {
    if (rank != spec_.rank) return;
    const int64_t done = state.steps_done();
    if (part == RunPart::Step) watch_.set_step(done + 1);
    if (part == RunPart::Load && spec_.phase == "load") fail_as(spec_);
    if (part != part_of_phase() || (part == RunPart::Step ? done + 1 : done) != spec_.step) return;
    if (spec_.changes_state())
      change_state(spec_, state);
    else
      fail_as(spec_);
  }

  void reach(SavePhase phase, int rank) override {
    if (rank == spec_.rank && name_of(phase) == spec_.phase && ++saves_ == spec_.step) fail_as(spec_);
  }

  StepWatch* watch(int rank) override { return rank == spec_.rank ? &watch_ : nullptr; }

 private:
  void watch(RunJob& job) {
    job.probe = this;
    if (spec_.kind == "slow-fsync") set_sync_call(slow_fsync);
  }

  std::optional<RunPart> part_of_phase() const {
    if (spec_.phase == "begin") return RunPart::Step;
    if (spec_.phase == "update") return RunPart::Updated;
    if (spec_.phase == "evaluate") return RunPart::Evaluate;
    if (spec_.phase == "save") return RunPart::Save;
    return std::nullopt;
  }

  const Spec spec_;
  Watch watch_;
  std::atomic<int64_t> saves_{0};
};

}  // namespace

std::unique_ptr<Fault> Fault::from_environment() {
  const char* text = std::getenv(kVariable);
  if (text == nullptr) return nullptr;
  return std::make_unique<ChosenFault>(parse(text));
}

}  // namespace trifold::launch
