// Reports of a trainer: steps, evaluations, memory, and the run itself.
#include <algorithm>
#include <cmath>

#include "checkpoint/collective.h"
#include "config/subjects/model_family.h"
#include "core/clock.h"
#include "data/document_pairs.h"
#include "layout/device_workspace.h"
#include "layout/flat_memory.h"
#include "models/prediction_module.h"
#include "models/width_rules.h"
#include "nn/experts.h"
#include "optim/weight_decay.h"
#include "run/host.h"
#include "run/ranks.h"
#include "train/trainer.h"

namespace trifold {

void Trainer::report_steps(std::span<const double> norms, double loss_scale, double seconds) {
  int64_t consumed = consumed_samples_, skipped = skipped_;
  const LossTerms& terms = replica_.model().reports.loss_terms;
  const auto balance = terms.find(ExpertReports::kBalance), z = terms.find(ExpertReports::kZ);
  const bool has_pairs = family_of_model(config_.model).has_pairs;
  reports_.clear();
  terms_.resize(sums_.size());
  source_tokens_.resize(sources_.size() * sums_.size());
  for (size_t i = 0; i < sums_.size(); ++i) {
    StepReport report;
    const int64_t before = steps_done_ + static_cast<int64_t>(i);
    report.step = before + 1;
    const int64_t samples = samples_of_batch(static_cast<int64_t>(i));
    consumed += samples;
    report.consumed_samples = consumed;
    report.samples = samples;
    report.loss = sums_[i].mean_loss();
    find_means(replica_.model().reports, sums_[i], terms_[i]);
    report.terms = terms_[i];
    if (balance && z && sums_[i].weight > 0) {
      const double all = sums_[i].weight * static_cast<double>(expert_layers_);
      report.router_balance = sums_[i].term(*balance) / all;
      report.router_z = sums_[i].term(*z) / all;
    }
    for (int k = 1; later_labels_ && k <= later_labels_->later_labels(); ++k) {
      const auto at = static_cast<size_t>(k) - 1;
      const double weight = counts_[i].later[at];
      report.later_losses[at] = sums_[i].term(*terms.find(PredictionReports::loss(k))) / weight;
      report.later_losses_count = k;
    }
    if (loads_) {
      report.expert_loads = loads_->of_blocks();
      report.experts_dropped = loads_->dropped();
      report.expert_rounds = loads_->rounds();
    }
    report.grad_norm = norms[i];
    report.block_grad_norms = block_grad_norms_;
    report.params_norm = params_norm_;
    report.num_zeros = num_zeros_;
    report.lr = rate_of(before - skipped);
    if (weight_decay_changes(config_.optimizer)) report.weight_decay = decay_of(before - skipped);
    count_sources(i, consumed);
    report.source_tokens = sources_of_step(i);
    report.sources = sources_;
    report.loss_scale = loss_scale;
    report.next_loss_scale = scaler_.scale();
    if (sums_[i].weight == 0)
      report.skip = StepSkip::NoTokens;
    else if (!std::isfinite(norms[i]) && scaler_.dynamic())
      report.skip = StepSkip::Overflow;
    skipped += report.skipped() ? 1 : 0;
    const int64_t positions = samples * config_.model.seq_length;
    report.tokens = has_pairs ? static_cast<int64_t>(counts_[i].tokens) : positions;
    report.step_seconds = seconds / static_cast<double>(sums_.size());
    report.tokens_per_second = static_cast<double>(report.tokens) / report.step_seconds;
    const double flops = replica_.cut().flops.all() * static_cast<double>(samples) *
                         static_cast<double>(report.tokens) /
                         static_cast<double>(std::max<int64_t>(1, positions));
    report.mfu = peak_flops_ > 0 ? flops / report.step_seconds / peak_flops_ : 0;
    check(report.skipped() || std::isfinite(report.grad_norm), "step {}: the gradient norm is {}",
          report.step, report.grad_norm);
    reports_.push_back(report);
  }
}

void Trainer::count_sources(size_t step, int64_t consumed) {
  const std::span<int64_t> counts = sources_of_step(step);
  train_.count_sources(consumed, counts);
  for (int64_t& count : counts) count *= config_.model.seq_length;
}

std::span<int64_t> Trainer::sources_of_step(size_t step) {
  return std::span(source_tokens_).subspan(step * sources_.size(), sources_.size());
}

std::vector<std::string> Trainer::size_lines() const {
  std::vector<std::string> lines;
  if (!run_.batch_sizes.grows()) return lines;
  int64_t first = 1;
  for (const StepsOfSize& some : run_.batch_sizes.sizes_of(config_.batch.train_iters)) {
    lines.push_back(fmt::format("{} in steps {} to {}", some.size, first, first + some.steps - 1));
    first += some.steps;
  }
  return lines;
}

void Trainer::share_notes() {
  Communicator& world = replica_.world();
  shared_note_ = executor_->capture_note();
  // Each note is preceded by its weight.
  const std::vector<std::string> notes = gather_texts(world, "comparing captured graphs", [&] {
    const char* weight = shared_note_.empty() ? "0" : executor_->capture_refused() ? "2" : "1";
    return weight + shared_note_;
  });
  const auto first =
      std::max_element(notes.begin(), notes.end(),
                       [](const std::string& a, const std::string& b) { return a.front() < b.front(); });
  if (first->front() == '0') return;  // from another plan with its own executor: the note is unchanged
  capture_note_ = first->substr(1);
  if (world.size() > 1) capture_note_ = fmt::format("rank {}: {}", first - notes.begin(), capture_note_);
}

int64_t Trainer::eval_samples() const {
  return std::min(config_.eval.eval_iters * *config_.batch.global_batch_size, valid_->samples());
}

std::optional<EvalReport> Trainer::evaluate(const DataSource& source, int64_t samples, bool has_pairs,
                                            const std::atomic<int>* signal, StepWatch* watch) {
  const auto start = Clock::now();
  std::optional<LossSums> sums;
  abort_on_error(replica_.world(), [&] {
    if (signal != nullptr &&
        !wait_until_ready(replica_.world(), replica_.compute(), *signal,
                          [&](auto patience) { return source.make_ready(0, patience); })) {
      stop_agreed_ = true;
      return;
    }
    StopPoll poll(replica_.world(), replica_.compute(), signal);
    sums = loss_sums(replica_, *executor_, source, valid_batch_, samples, has_pairs, poll, watch);
    stop_agreed_ = stop_agreed_ || poll.stopped();
  });
  if (!sums) return std::nullopt;
  EvalReport report{steps_done_, sums->mean_loss(), static_cast<int64_t>(sums->weight), seconds_since(start),
                    family_of_model(config_.model).loss_unit};
  find_means(replica_.model().reports, *sums, report.terms);
  return report;
}

std::optional<EvalReport> Trainer::evaluate(const std::atomic<int>* signal) {
  check(valid_ != nullptr, "there is no validation data to evaluate on");
  return evaluate(*valid_, eval_samples(), family_of_model(config_.model).has_pairs, signal, nullptr);
}

EvalReport Trainer::evaluate() { return evaluate(nullptr).value(); }

std::optional<EvalReport> Trainer::evaluate(const DataSource& source, StepWatch* watch,
                                            const std::atomic<int>* signal) {
  return evaluate(source, source.samples(), false, signal, watch);
}

void Trainer::poll_stop(const std::atomic<int>& signal) {
  stop_agreed_ = any_signal(replica_.world(), replica_.compute(), signal) || stop_agreed_;
}

double Trainer::measure_peak() {
  const double now =
      trifold::measure_peak(replica_.world(), replica_.ops(), replica_.compute(), replica_.dtype());
  return peak_flops_ = std::max(peak_flops_, now);
}

MemoryReport Trainer::memory() const {
  MemoryReport memory = held_memory(replica_.weights(), grads_, optimizer_);
  memory.predicted_activations = activations_.total();
  memory.offloaded += activations_.file_bytes();
  memory.workspace = device_workspace(run_);
  return memory;
}

MemoryReport Trainer::held() const {
  MemoryReport memory = this->memory();
  memory.predicted_activations = executor_->allocated();
  return memory;
}

std::vector<MemoryReport> Trainer::memory_of_pipeline() {
  constexpr size_t kParts = 6;
  const auto ranks = static_cast<size_t>(replica_.mesh().size(Axis::Pp));
  const MemoryReport mine = memory();
  std::vector<double> bytes(ranks * kParts, 0.0);  // exact: far below 2^53
  size_t at = static_cast<size_t>(replica_.mesh().coord(Axis::Pp)) * kParts;
  for (const size_t part : {mine.parameters, mine.gradients, mine.optimizer, mine.predicted_activations,
                            mine.offloaded, mine.workspace})
    bytes[at++] = static_cast<double>(part);
  Stream host = replica_.compute().host();
  replica_.mesh()
      .comm({Axis::Pp})
      .all_reduce({bytes.data(), DType::F64, {static_cast<int64_t>(bytes.size())}}, Reduce::Sum, host);
  std::vector<MemoryReport> all;
  const auto part = [&](size_t rank, size_t i) { return static_cast<size_t>(bytes[rank * kParts + i]); };
  for (size_t rank = 0; rank < ranks; ++rank)
    all.push_back({part(rank, 0), part(rank, 1), part(rank, 2), part(rank, 3), part(rank, 4), part(rank, 5)});
  return all;
}

// Signals are not watched here, so it waits only briefly for the data of a corpus that is still being tokenized.
double Trainer::document_imbalance() {
  constexpr std::chrono::milliseconds kPatience{1000};
  const Mesh& mesh = replica_.mesh();
  if (mesh.size(Axis::Cp) == 1 || !train_.separates_documents()) return 0;
  std::vector<double> pairs(static_cast<size_t>(mesh.size(Axis::Cp)), 0.0);
  const ReadOrder order = read_order();
  const int64_t end = std::min(order.end, train_.samples());
  Batch batch = valid_batch_.batch();
  for (int64_t micro = 0; micro < std::min<int64_t>(order.count, planned_->order().micros); ++micro) {
    const int64_t first = order.first_sample + micro * order.stride;
    if (first < end && !train_.make_ready(first, kPatience)) return 0;
    read_padded(train_, batch, first, end);
    add_document_pairs(batch, pairs);
  }
  return most_over_mean(pairs);
}

RunReport Trainer::report() {
  RunReport report;
  report.document_imbalance = document_imbalance();
  report.mesh = replica_.description();
  report.operations = replica_.ops().name;
  report.parameters = replica_.model().params.global_elements();
  report.train_flops_per_sample = replica_.cut().flops.all();
  report.peak_flops = peak_flops_;
  report.stages = report_stages(replica_.cut());
  report.memory = memory_of_pipeline();
  for (const MemoryReport& rank : report.memory)
    report.planned_bytes = std::max(report.planned_bytes, rank.predicted_total());
  report.first_step = steps_done_ + 1;
  report.last_step = config_.batch.train_iters;
  if (config_.batch.train_epochs && config_.batch.pass_samples) {
    const int64_t left = config_.batch.train_iters - steps_done_;
    const int64_t before = consumed_samples_ + run_.batch_sizes.samples_of(left - 1, consumed_samples_);
    report.passes = {
        *config_.batch.train_epochs, *config_.batch.pass_samples,
        left > 0 ? std::min(*config_.batch.pass_samples - before, run_.batch_sizes.at(before).size) : 0};
  }
  if (valid_ != nullptr) {
    report.eval_samples = eval_samples();
    report.eval_samples_asked = config_.eval.eval_iters * *config_.batch.global_batch_size;
  }
  report.plan = to_string(plan_);
  report.param_factors = planned_->param_factors();
  report.sources = sources_;
  report.widths = width_lines(config_.model, replica_.model().params);
  report.batch_sizes = size_lines();
  report.unit = family_of_model(config_.model).unit;
  report.loss_unit = family_of_model(config_.model).loss_unit;
  return report;
}

}  // namespace trifold
