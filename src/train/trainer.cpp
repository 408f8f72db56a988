#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "config/subjects/model_family.h"
#include "core/clock.h"
#include "core/stream.h"
#include "core/thread_pool.h"
#include "layout/device_workspace.h"
#include "layout/unit_actions.h"
#include "layout/zero_sharing.h"
#include "optim/lr_schedule.h"
#include "optim/weight_decay.h"
#include "run/checks/finite_check.h"
#include "run/checks/overlap_check.h"
#include "run/device.h"
#include "run/ranks.h"
#include "train/trainer_window.h"
#include "train/tune_products.h"

namespace trifold {

namespace {

// Weight versions of each pipeline rank.
std::vector<int> versions_of_ranks(const StepOrder& order) {
  std::vector<int> versions;
  for (const RankPlan& row : order.compute) versions.push_back(weight_versions(row));
  return versions;
}

// The most versions that a plan of the run needs: where the batch grows, the first plan may have few batches.
std::vector<int> versions_of_run(const RunSpec& run, const StepOrder& first) {
  std::vector<int> most = versions_of_ranks(first);
  if (!first.async || !run.batch_sizes.grows()) return most;
  for (const StepsOfSize& some : run.batch_sizes.sizes_of(std::max<int64_t>(1, run.train_iters))) {
    const auto batches = static_cast<int>(std::min<int64_t>(run.order.window, some.steps));
    const std::vector<int> here = versions_of_ranks(step_order(run.with_batch(some.size), batches));
    for (size_t i = 0; i < most.size(); ++i) most[i] = std::max(most[i], here[i]);
  }
  return most;
}

// The plan of a step, the same on all ranks: `known`, or a new one. The search for an order runs on rank 0 alone,
// because it may take minutes, and all ranks use its result, because processors of other kinds could round its costs
// differently. Each rank offers the order that it knows; what rank 0 says replaces it.
std::shared_ptr<const PlannedRun> agreed_plan(Communicator& world, const RunSpec& run, int batches,
                                              std::shared_ptr<const PlannedRun> known) {
  if (!searches_order(run)) return known ? known : std::make_shared<const PlannedRun>(run, batches);
  std::string text;
  if (known)
    text = to_string(known->order().compute);
  else if (world.rank() == 0)
    text = to_string(step_order(run, batches).compute);
  ThreadPool pool(1);
  Stream host(Stream::Mode::Inline, pool);
  auto length = static_cast<int64_t>(text.size());
  world.broadcast({&length, DType::I64, {1}}, 0, host);
  text.resize(static_cast<size_t>(length));
  world.broadcast({text.data(), DType::U8, {length}}, 0, host);
  Plan compute = parse_plan(text);
  if (known && known->order().compute == compute) return known;
  return std::make_shared<const PlannedRun>(run, order_of_plan(run, std::move(compute)));
}

std::shared_ptr<const PlannedRun> first_plan(Communicator& world, const RunSpec& run,
                                             const PlannedRuns& plans) {
  const int64_t size = run.batch_sizes.at(0).size;
  const int batches = batches_of_plan(run, 0);
  return agreed_plan(world, run.with_batch(size), batches, plans.find(size, batches));
}

}  // namespace

Trainer::Trainer(Communicator& world, const PretrainConfig& config, PlannedRuns planned,
                 const DataSource& train, const DataSource* valid, const OpTable* ops)
    : config_(config),
      run_(run_spec(config)),
      plans_(std::move(planned)),
      planned_(first_plan(world, run_, plans_)),
      replica_(world, run_.mesh, run_.model, run_.dtype, run_.seed, planned_->order().stage_ranks(),
               run_.zero, versions_of_run(run_, planned_->order()), config.precision, ops),
      plan_(make_plan()),
      grads_(replica_.layout().flat(),
             replica_.layout().gradients(row(), reduction_of(run_, run_.reduces_each())), replica_.groups(),
             replica_.ops(), accumulate_type(replica_.dtype()),
             {replica_.layout().zero().stage.optimizer, planned_->order().micros,
              config.precision.grad_reduce_in_bf16},
             replica_.comm(), replica_.ties()),
      optimizer_(replica_.layout().flat(), replica_.mesh(), replica_.weights(), grads_, replica_.ops(),
                 config.optimizer, replica_.dtype(), config.seed, replica_.compute()),
      norm_(replica_.layout().flat(), grads_, replica_.mesh(), replica_.ops()),
      scaler_(config.precision),
      expert_layers_(count_expert_layers(config.model) + count_expert_modules(config.model)),
      later_labels_(replica_.model().later_labels == 0
                        ? std::nullopt
                        : std::optional<LaterLabels>(std::in_place, train, replica_.model().later_labels)),
      train_(later_labels_ ? static_cast<const DataSource&>(*later_labels_) : train),
      valid_(valid),
      losses_(config.log.watch),
      valid_batch_(train_, config.batch.micro_batch_size) {
  replica_.reserve_workspace(device_workspace(run_));
  if (config.log.log_block_grad_norms)
    block_norms_ =
        std::make_unique<BlockNorms>(replica_.layout().flat(), grads_, replica_.mesh(), replica_.ops());
  if (config.log.log_params_norm)
    param_norm_ = std::make_unique<ParamNorm>(replica_.layout().flat(), grads_, optimizer_, replica_.mesh(),
                                              replica_.ops());
  if (config.log.log_num_zeros_in_grad)
    grad_zeros_ = std::make_unique<GradZeros>(replica_.layout().flat(), grads_, replica_.mesh(),
                                              replica_.ops(), accumulate_type(replica_.dtype()));
  sources_ = train_.sources();
  if (config.model.num_experts) loads_ = std::make_unique<ExpertLoads>(replica_, optimizer_, config_.model);
  make_executor();
}

// Ranks at all positions of the other axes hold parts of equal shapes, so one plan serves all of them.
Plan Trainer::make_plan() {
  if (plan_shape(run_, planned_->order(), replica_.cut(), run_.reduces_each()) != planned_->shape())
    fail("the model of rank {} does not have the shape that was planned", replica_.world().rank());
  Plan plan = planned_->plan();
  RankPlan& mine = plan[static_cast<size_t>(replica_.mesh().coord(Axis::Pp))];
  mine = replica_.with_residency(mine);
  return plan;
}

void Trainer::make_executor() {
  executor_.reset();  // first: two would hold their memory and files of activations at once
  activations_ = replica_.layout().activations(row(), config_.batch.micro_batch_size,
                                               config_.model.seq_length, run_.layer_type());
  executor_ = std::make_unique<Executor>(replica_.pipeline(), replica_.mesh(), replica_.ops(),
                                         replica_.weights(), &grads_, replica_.compute(), replica_.side(),
                                         run_.layer_type(), activations_);
  executor_->collect(replica_.model().reports);
  if (loads_) loads_->write_choices(executor_->host_values());
  const bool graphs = config_.mesh.enable_cuda_graph;
  if (config_.mesh.tune_products != "off") tune_products();
  if (graphs) executor_->capture_blocks(replica_.model().params);
  if (replica_.ops().device != nullptr && replica_.world().size() > 1) rehearse(graphs ? 2 : 1);
}

// Must precede the capture of graphs, which contain the algorithms of their products.
void Trainer::tune_products() {
  ProductMeasuring products(replica_.world(), products_of(replica_.world()), config_.mesh.tune_products);
  rehearse(1);
  if (const std::string note = products.finish(); !note.empty()) product_note_ = note;
}

// Loading a kernel, allocating memory and instantiating a graph may wait for the whole device, and so for collectives
// that wait for other ranks, which may wait for this one. The data do not matter.
void Trainer::rehearse(int times) {
  Batch batch = valid_batch_.batch();
  std::fill_n(batch.lengths.as<int32_t>(), batch.lengths.elements(),
              static_cast<int32_t>(batch.seq_length()));
  const Mesh& mesh = replica_.mesh();
  cut_rows(batch, rows_here(replica_.model().row_cut, batch.seq_length(), mesh.sizes(), mesh.coords()));
  const auto give_batch = [&](int) { return batch; };
  const auto no_step = [](const Action&) {};
  abort_on_error(replica_.world(), [&] {
    // Graphs are captured the second time. Each rehearsal begins like a step, without accumulated gradients.
    for (int time = 0; time < times; ++time) {
      grads_.restart(replica_.compute());
      executor_->rehearse(row(),
                          {config_.seed, 1.0, true, give_batch, no_step, planned_->order().micros, nullptr});
    }
    grads_.rehearse(replica_.compute());
  });
}

void Trainer::prepare(int batches) {
  if (batches != planned_->order().batches || batch_size() != planned_->run().global_batch_size) {
    planned_ = agreed_plan(replica_.world(), run_.with_batch(batch_size()), batches,
                           plans_.find(batch_size(), batches));
    grads_.set_reductions(planned_->order().micros);
    plan_ = make_plan();
    make_executor();
    batches_.reset();
    window_.reset();
  }
  if (planned_->order().async && !window_) window_ = std::make_unique<Window>(*this);
  if (!batches_) batches_ = std::make_unique<ReadAhead>(train_, read_order(), activations_.batches);
}

const RankPlan& Trainer::row() const { return plan_[static_cast<size_t>(replica_.mesh().coord(Axis::Pp))]; }

ReadOrder Trainer::read_order() const {
  const Mesh& mesh = replica_.mesh();
  const int64_t micro_batch = config_.batch.micro_batch_size;
  ReadOrder order;
  order.first_sample = consumed_samples_ + mesh.coord(Axis::Dp) * micro_batch;
  order.stride = mesh.size(Axis::Dp) * micro_batch;
  order.micro_batch_size = micro_batch;
  const int64_t steps =
      std::min(config_.batch.train_iters - steps_done_, run_.batch_sizes.at(consumed_samples_).steps);
  order.count = steps * planned_->order().micros;
  order.rows = rows_here(replica_.model().row_cut, train_.seq_length(), mesh.sizes(), mesh.coords());
  order.permutation = activations_.micro_order;
  if (config_.batch.pass_samples) order.end = *config_.batch.pass_samples;
  return order;
}

Trainer::Agreement Trainer::agree(bool stop, const Traffic& before) {
  const Traffic now = replica_.world().world_traffic();
  double sums[] = {stop ? 1.0 : 0.0, static_cast<double>(now.sent - before.sent),
                   static_cast<double>(now.left_node - before.left_node),
                   executor_->capture_note() != shared_note_ ? 1.0 : 0.0};
  Stream host = replica_.compute().host();
  replica_.world().all_reduce({sums, DType::F64, {4}}, Reduce::Sum, host);
  return {sums[0] > 0, {static_cast<int64_t>(sums[1]), static_cast<int64_t>(sums[2])}, sums[3] > 0};
}

int64_t Trainer::tokens_per_step() const { return batch_size() * config_.model.seq_length; }

int64_t Trainer::samples_of_batch(int64_t ahead) const {
  const int64_t full = batch_size();
  if (!config_.batch.pass_samples) return full;
  return std::clamp<int64_t>(*config_.batch.pass_samples - consumed_samples_ - ahead * full, 0, full);
}

int64_t Trainer::samples_before(int64_t step) const {
  const BatchSizes& sizes = run_.batch_sizes;
  if (!sizes.grows()) return step * sizes.full();
  return consumed_samples_ - skipped_samples_ + (step - updates_before(steps_done_)) * batch_size();
}

double Trainer::rate_of(int64_t step) const {
  const LrSchedule schedule(config_.lr, run_.batch_sizes.full(), config_.batch.train_iters);
  return run_.batch_sizes.grows() ? schedule.after(samples_before(step)) : schedule.at(step);
}

double Trainer::decay_of(int64_t step) const {
  return weight_decay_after(config_.optimizer, samples_before(step),
                            run_.batch_sizes.samples_of(config_.batch.train_iters));
}

Trainer::~Trainer() = default;

bool Trainer::wait_for_data(const std::atomic<int>& signal) {
  bool ready = true;
  abort_on_error(replica_.world(), [&] {
    ready = wait_until_ready(replica_.world(), replica_.compute(), signal,
                             [&](auto patience) { return train_.make_ready(consumed_samples_, patience); });
  });
  return ready;
}

std::span<const StepReport> Trainer::advance(const std::atomic<int>* signal) {
  abort_on_error(replica_.world(), [&] { run_plan(signal); });
  return reports_;
}

void Trainer::compute(ReadAhead& batches, StepWatch* watch) {
  grads_.restart(replica_.compute());
  const double later_factor =
      config_.model.mtp_loss_scaling_factor / static_cast<double>(std::max(1, replica_.model().later_labels));
  const auto give_batch = [&](int micro) {
    Batch batch = batches.get();
    if (window_) window_->count_tokens(micro, batch);
    if (!counts_.empty())
      batch.values =
          batch_values(replica_.model().reports,
                       counts_[static_cast<size_t>(micro / planned_->order().micros)], later_factor);
    return batch;
  };
  const auto step = [&](const Action& action) {
    if (window_)
      window_->step(action);
    else
      grads_.finish(replica_.compute());
  };
  const double scale = scaler_.scale() / static_cast<double>(tokens_per_step());
  const std::span<const LossSums> mine =
      executor_->run(row(), {config_.seed, scale, true, give_batch, step, planned_->order().micros, watch});
  sums_.assign(mine.begin(), mine.end());
  sum_over_ranks(replica_, sums_);
  if (loads_) loads_->sum(executor_->counters());
}

void Trainer::count_ahead() {
  const Mesh& mesh = replica_.mesh();
  const int64_t micro_batch = config_.batch.micro_batch_size;
  const int64_t end = config_.batch.pass_samples.value_or(train_.samples());
  int64_t first = consumed_samples_ + mesh.coord(Axis::Dp) * micro_batch;
  counts_.assign(static_cast<size_t>(planned_->order().batches), {});
  for (LabelCount& count : counts_)
    for (int micro = 0; micro < planned_->order().micros; ++micro, first += mesh.size(Axis::Dp) * micro_batch)
      count_labels(train_, valid_batch_, first, end, count);
  sum_over_data_ranks(replica_, counts_);
}

void Trainer::repeat(StepWatch& watch) {
  ReadOrder order = read_order();
  order.count = planned_->order().micros;
  ReadAhead repeated(train_, order, activations_.batches);
  compute(repeated, &watch);
}

void Trainer::repeat_without_overlap() {
  const OverlapCheck before(replica_.ops(), replica_.compute(), replica_.layout().flat(), grads_, sums_[0]);
  OneByOne watch(replica_.streams(), watch_);
  repeat(watch);
  before.compare(sums_[0], fmt::format("step {}", steps_done_ + 1));
  ++checked_;
}

void Trainer::run_plan(const std::atomic<int>* signal) {
  const auto start = Clock::now();
  const Traffic traffic = replica_.world().world_traffic();
  prepare(batches_of_plan(run_, steps_done_));
  const double used_scale = scaler_.scale();
  if (window_) window_->begin();
  if (family_of_model(config_.model).has_pairs || later_labels_) count_ahead();
  compute(*batches_, watch_);
  if (!window_ && checked_ < config_.log.check_overlap) repeat_without_overlap();
  compare_before_update();
  const double norm = window_ ? 0 : update(sums_[0]);
  if (param_norm_) params_norm_ = param_norm_->measure(replica_.compute());
  const std::span<const double> norms = window_ ? window_->finish() : std::span(&norm, 1);
  const Agreement agreed = agree(signal != nullptr && signal->load() != 0, traffic);
  stop_agreed_ = agreed.stop;
  if (agreed.noted) share_notes();
  step_time_ = {start, Clock::now()};
  report_steps(norms, used_scale, step_time_.seconds());
  for (StepReport& report : reports_) {
    report.sent_bytes = agreed.traffic.sent / planned_->order().batches;
    report.left_node_bytes = agreed.traffic.left_node / planned_->order().batches;
  }
  steps_done_ += planned_->order().batches;
  consumed_samples_ = reports_.back().consumed_samples;
  for (const StepReport& report : reports_) {
    skipped_ += report.skipped() ? 1 : 0;
    skipped_samples_ += report.skipped() ? report.samples : 0;
    if (!report.skipped()) losses_.add(report.step, report.loss);
  }
}

const StepReport& Trainer::skip() {
  check(!window_, "steps of an asynchronous schedule are not skipped");
  step_time_.begin = step_time_.end = Clock::now();
  StepReport report;
  report.step = steps_done_ + 1;
  report.samples = samples_of_batch(0);
  report.consumed_samples = consumed_samples_ + report.samples;
  report.loss = std::numeric_limits<double>::quiet_NaN();
  report.lr = rate_of(updates_before(steps_done_));
  report.loss_scale = report.next_loss_scale = scaler_.scale();
  report.skip = StepSkip::Asked;
  steps_done_ = report.step;
  consumed_samples_ = report.consumed_samples;
  ++skipped_;
  skipped_samples_ += report.samples;
  batches_.reset();  // it is ahead by the samples of this step
  reports_.assign(1, report);
  return reports_.front();
}

// With sharded optimizer state an update overwrites every rank's weights with the weights of the ranks that own them,
// and so hides any difference that arose during the step.
void Trainer::compare_before_update() {
  const int64_t interval = config_.checkpoint.check_replicas.value_or(0), step = steps_done_ + 1;
  if (interval == 0 || step % interval != 0 || window_ || config_.zero.zero_stage == 0) return;
  check_replicas(fmt::format("step {}, before its update", step));
}

double Trainer::update(const LossSums& sums) {
  block_grad_norms_.clear();
  num_zeros_.reset();
  if (sums.weight == 0) return 0;  // all tokens are masked, so every gradient is 0
  Stream& stream = replica_.compute();
  // Gradients belong to the sum of the loss over all tokens, times the loss scale; this factor turns them into
  // gradients of the mean over counted tokens (1 without a mask and a scale).
  const double mean_factor = static_cast<double>(tokens_per_step()) / sums.weight / scaler_.scale();
  ExactSum squares;
  norm_.add_squares(squares, stream);
  const double norm = mean_factor * norm_.norms({&squares, 1}, stream).front();
  const bool overflow = !std::isfinite(norm);
  // The loss is scaled only after it was computed, so a scale cannot be the cause.
  if (!std::isfinite(sums.loss) || (overflow && scaler_.at_least_scale()))
    explain(sums.loss / sums.weight, norm);
  scaler_.update(overflow);
  if (overflow) return norm;
  if (block_norms_)
    for (const double of_block : block_norms_->measure(stream))
      block_grad_norms_.push_back(mean_factor * of_block);
  if (grad_zeros_) num_zeros_ = grad_zeros_->count(stream);
  if (loads_) {
    loads_->move_biases();
    loads_->keep_choices();
    loads_->write_choices(executor_->host_values());
  }
  const int64_t updates = updates_before(steps_done_);
  optimizer_.set_weight_decay(decay_of(updates));
  optimizer_.step(0,
                  {rate_of(updates), updates + 1 - optimizer_began_,
                   mean_factor * clip_factor(norm, config_.optimizer.clip_grad)},
                  stream);
  return norm;
}

FiniteCheckParts Trainer::finite_check_parts() {
  return {replica_.world(),         replica_.mesh(), replica_.ops(),     replica_.model(),
          replica_.layout().flat(), grads_,          replica_.compute(), "the training data"};
}

void Trainer::explain(double loss, double norm) {
  failed_step_ = steps_done_ + 1;
  FiniteCheck search(finite_check_parts(), watch_);
  repeat(search);
  const std::string scale = scaler_.dynamic()
                                ? fmt::format(" with the smallest loss scale, {}", scaler_.scale())
                            : scaler_.scale() != 1 ? fmt::format(" with the loss scale {}", scaler_.scale())
                                                   : "";
  throw search.error(steps_done_ + 1, loss, norm, scale);
}

}  // namespace trifold
