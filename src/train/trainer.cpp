#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "data_parallel/grad_norm.h"
#include "optim/lr_schedule.h"
#include "train/evaluation.h"
#include "train/host.h"

namespace trifold {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

DType dtype_of(const PrecisionConfig& config) { return config.f64 ? DType::F64 : DType::F32; }

}  // namespace

Trainer::Trainer(Communicator& world, const PretrainConfig& config, const DataSource& train,
                 const DataSource* valid)
    : config_(config),
      order_(step_order(config)),
      replica_(world, config.mesh, config.model, dtype_of(config.precision), config.seed,
               order_.rank_of_stage),
      grads_(replica_.model().params, replica_.blocks(), replica_.mesh(), replica_.ops(), replica_.dtype(),
             kBucketBytes, replica_.comm(), replica_.ties()),
      optimizer_(replica_.model().params, replica_.weights(), grads_, replica_.ops(), config.optimizer,
                 replica_.dtype()),
      plan_(complete_plan(order_, replica_.cut(), replica_.model(), replica_.dtype())),
      activations_(Executor::measure(replica_.place(), replica_.model().params, replica_.mesh(), row(),
                                     config.batch.micro_batch_size, config.model.seq_length,
                                     replica_.dtype())),
      executor_(replica_.place(), replica_.mesh(), replica_.ops(), replica_.weights(), &grads_,
                replica_.compute(), replica_.side(), replica_.dtype(), activations_),
      train_(train),
      valid_(valid),
      valid_batch_(config.batch.micro_batch_size, config.model.seq_length) {}

const RankPlan& Trainer::row() const { return plan_[static_cast<size_t>(replica_.mesh().coord(Axis::Pp))]; }

ReadOrder Trainer::read_order() const {
  const Mesh& mesh = replica_.mesh();
  const int64_t micro_batch = config_.batch.micro_batch_size;
  const int64_t consumed = steps_done_ * *config_.batch.global_batch_size;
  return {consumed + mesh.coord(Axis::Dp) * micro_batch, mesh.size(Axis::Dp) * micro_batch, micro_batch,
          (config_.batch.train_iters - steps_done_) * order_.micros, activations_.micro_order};
}

// A stop asked for on one rank reaches all of them after the same step.
bool Trainer::agree_to_stop(bool requested) {
  double count = requested ? 1 : 0;
  replica_.world().all_reduce({&count, DType::F64, {1}}, Reduce::Sum, replica_.compute());
  replica_.compute().synchronize();
  return count > 0;
}

StepReport Trainer::step(const std::atomic<int>* signal) {
  const auto start = Clock::now();
  const int64_t consumed = steps_done_ * *config_.batch.global_batch_size;
  const int64_t tokens = *config_.batch.global_batch_size * config_.model.seq_length;
  StepReport report;
  grads_.zero(replica_.compute());
  if (!batches_) batches_ = std::make_unique<ReadAhead>(train_, read_order(), activations_.batches);
  const auto give_batch = [&](int) { return batches_->get(); };
  const auto finish = [&](const Action&) { grads_.finish(replica_.compute()); };
  const LossSums mine =
      executor_.run(row(), {config_.seed, 1.0 / static_cast<double>(tokens), true, give_batch, finish});
  const LossSums all = sum_over_ranks(replica_, mine);
  check(all.weight > 0, "step {}: every token of the global batch is masked out of the loss",
        steps_done_ + 1);

  report.loss = all.loss / all.weight;
  // Gradients are of the sum over `tokens`; a mean over the tokens that count needs this factor (1 without a
  // mask).
  const double mean_factor = static_cast<double>(tokens) / all.weight;
  report.grad_norm = update(mean_factor);
  report.step = ++steps_done_;
  stop_agreed_ = agree_to_stop(signal != nullptr && signal->load() != 0);
  report.consumed_samples = consumed + *config_.batch.global_batch_size;
  report.lr = last_lr_;
  report.tokens = tokens;
  report.step_seconds = seconds_since(start);
  report.tokens_per_second = static_cast<double>(tokens) / report.step_seconds;
  const double flops =
      replica_.model().train_flops_per_sample() * static_cast<double>(*config_.batch.global_batch_size);
  report.mfu = peak_flops_ > 0 ? flops / report.step_seconds / peak_flops_ : 0;
  return report;
}

double Trainer::update(double mean_factor) {
  const double norm = mean_factor * grad_norm(replica_.model().params, grads_, replica_.mesh(),
                                              replica_.ops(), replica_.compute());
  check(std::isfinite(norm), "step {}: the gradient norm is {}; the weights were not changed",
        steps_done_ + 1, norm);
  last_lr_ =
      learning_rate(config_.lr, *config_.batch.global_batch_size, config_.batch.train_iters, steps_done_);
  optimizer_.step(steps_done_ + 1, last_lr_, mean_factor * clip_factor(norm, config_.optimizer.clip_grad),
                  replica_.compute());
  return norm;
}

EvalReport Trainer::evaluate() {
  check(valid_ != nullptr, "there is no validation data to evaluate on");
  const auto start = Clock::now();
  const int64_t samples = config_.eval.eval_iters * *config_.batch.global_batch_size;
  const LossSums sums =
      sum_over_ranks(replica_, forward_samples(executor_, replica_.mesh(), *valid_, valid_batch_, samples));
  return {steps_done_, sums.loss / sums.weight, static_cast<int64_t>(sums.weight), seconds_since(start)};
}

double Trainer::measure_peak() {
  const double now =
      trifold::measure_peak(replica_.world(), replica_.ops(), replica_.compute(), replica_.dtype());
  return peak_flops_ = std::max(peak_flops_, now);
}

MemoryReport Trainer::memory() const {
  return {replica_.weights().bytes(), grads_.bytes(), optimizer_.bytes(), activations_.total()};
}

RunReport Trainer::report() {
  RunReport report;
  report.mesh = replica_.description();
  report.operations = replica_.ops().name;
  report.parameters = replica_.model().params.global_elements();
  report.train_flops_per_sample = replica_.model().train_flops_per_sample();
  report.peak_flops = peak_flops_;
  report.memory = memory();
  report.first_step = steps_done_ + 1;
  report.last_step = config_.batch.train_iters;
  report.plan = to_string(plan_);
  return report;
}

}  // namespace trifold
