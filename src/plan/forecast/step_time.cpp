#include "plan/forecast/step_time.h"

#include <algorithm>

#include "plan/forecast/kernels.h"
#include "plan/forecast/network.h"

namespace trifold {

namespace {

// The cost of one micro-batch in all stages of a pipeline rank.
struct RankCost {
  PartSeconds compute, tensor, context;
  double gathers = 0;  // gathers of sharded weights
  double hidden = 0;   // exchanges of experts' rows that the other halves of pairs hide, averaged
  HeldWeights weights, trained;
  std::vector<double> layers, forward_only;  // [layer kind], the second of those without a backward
  double all() const { return compute.all() + tensor.all() + context.all() + gathers; }
  double busy() const { return all() - hidden; }
};

bool shards_weights(const Workload& work) { return work.zero_stage == 3 && work.data_ranks() > 1; }

double gradient_bytes(const Software& software, const Workload& work) {
  return software.gradient_bytes > 0 ? software.gradient_bytes : work.gradient_bytes;
}

void add(PartSeconds& sum, const PartSeconds& part, double times = 1) {
  sum.forward += times * part.forward;
  sum.input += times * part.input;
  sum.weight += times * part.weight;
}

void add(HeldWeights& sum, const HeldWeights& weights, double times) {
  sum.dense += times * weights.dense;
  sum.experts += times * weights.experts;
}

void add(BlockCost& sum, const BlockCost& block, double times) {
  add(sum.compute, block.compute, times);
  add(sum.tensor, block.tensor, times);
  add(sum.context, block.context, times);
  add(sum.rows, block.rows, times);
}

// Seconds of the exchanges of experts' rows in a forward and in a backward that the other half of the pair hides
// (schedule/action_seconds.h).
double hidden_in_pair(const BlockCost& forward, const BlockCost& backward) {
  const double ahead = forward.rows.forward, back = backward.rows.backward();
  return std::min(ahead, backward.all().backward() - back) + std::min(back, forward.all().forward - ahead);
}

class Closed {
 public:
  Closed(const Hardware& hardware, const Software& software, const Workload& work, const BlockCosts& costs)
      : hardware_(hardware), software_(software), work_(work), costs_(costs) {}

  StepTime result() const {
    const std::vector<RankCost> ranks = pipeline_ranks();
    const auto slowest = std::max_element(
        ranks.begin(), ranks.end(), [](const RankCost& a, const RankCost& b) { return a.busy() < b.busy(); });
    StepTime time;
    time.compute = work_.micros * slowest->compute.all();
    time.tensor = work_.micros * (slowest->tensor.all() - slowest->hidden);
    time.context = work_.micros * slowest->context.all();
    time.weights = shards_weights() ? once_a_step(*slowest) + work_.micros * slowest->gathers : 0;
    double all = 0;
    for (const RankCost& rank : ranks) all += rank.all();
    time.bubble =
        work_.takes_turns ? bubble_of_turns(*slowest) : (all - slowest->all()) * bubble_share(*slowest);
    time.messages = messages(*slowest);
    for (const RankCost& rank : ranks) {
      time.data = std::max(time.data, data_part(rank));
      time.update = std::max(time.update, update_seconds(hardware_, work_, rank.trained));
    }
    return time;
  }

 private:
  bool shards_weights() const { return trifold::shards_weights(work_); }

  RankCost rank_cost(int rank) const {
    RankCost cost;
    cost.layers.resize(costs_.layers.size());
    cost.forward_only.resize(costs_.layers.size());
    std::vector<BlockCost> stages;
    for (int chunk = 0; chunk < work_.chunks; ++chunk) {
      const int stage = stage_of(rank, chunk);
      const std::vector<int>& layers = work_.stages.layers[static_cast<size_t>(stage)];
      BlockCost& whole = stages.emplace_back();
      const auto take = [&](const BlockCost& block, const HeldWeights& weights, const HeldWeights& trained,
                            double times) {
        add(whole, block, times);
        add(cost.weights, weights, times);
        add(cost.trained, trained, times);
      };
      if (stage == 0) take(costs_.embedding, embedding_weights(), embedding_trained(), 1);
      for (size_t kind = layers.size(); kind-- > 0;) {
        const BlockCost& layer = costs_.layers[kind];
        const int forward_only = work_.stages.forward_only_of(stage, kind),
                  both = layers[kind] - forward_only;
        take(layer, layer.weights, layer.trained, both);
        if (forward_only > 0) take(layer.forward_only(), layer.weights, {}, forward_only);
        cost.layers[kind] += both;
        cost.forward_only[kind] += forward_only;
      }
      // A tied weight is also on the last rank, if that is another rank.
      const bool whole_model = work_.pipeline == 1;
      take(costs_.head, whole_model ? costs_.head_at_embedding() : costs_.head.weights,
           whole_model ? costs_.trained_at_embedding() : costs_.head.trained,
           work_.stages.share_of_head(stage));
      add(cost.compute, whole.compute);
      add(cost.tensor, whole.tensor);
      add(cost.context, whole.context);
    }
    if (work_.takes_turns) cost.hidden = hidden_seconds(rank, stages[0], stages[1]) / work_.micros;
    if (shards_weights() && work_.pipeline == 1)
      for (size_t kind = cost.layers.size(); kind-- > 0;) {
        const GatherSeconds gathers = layer_gathers(hardware_, software_, work_, costs_.layers[kind]);
        cost.gathers += cost.layers[kind] * gathers.all() + cost.forward_only[kind] * gathers.forward;
      }
    return cost;
  }

  // In V-shaped schedules the second chunks run along the ranks in reverse.
  int stage_of(int rank, int chunk) const {
    const bool back = needs_two_chunks(work_.schedule) && chunk == 1;
    return back ? 2 * work_.pipeline - 1 - rank : chunk * work_.pipeline + rank;
  }

  // Seconds hidden per step in the pairs of DualPipe-V (schedule/schedules_zero_bubble.cpp): pairs form while both
  // chunks have micro-batches to begin, and afterwards for the second chunk's micro-batches by which the later ranks
  // are ahead.
  double hidden_seconds(int rank, const BlockCost& first, const BlockCost& second) const {
    return of_first_chunk(rank) * hidden_in_pair(first, second) +
           of_second_chunk(rank) * hidden_in_pair(second, first);
  }
  // The numbers of pairs with a forward of the first and of the second chunk. On the last rank the first backward needs
  // its forward.
  double of_first_chunk(int rank) const {
    const double pairs = both_chunks(rank);
    return rank + 1 == work_.pipeline ? std::max(0.0, pairs - 1) : pairs;
  }
  double of_second_chunk(int rank) const { return both_chunks(rank) + work_.pipeline - rank - 1; }
  double both_chunks(int rank) const { return std::max(0.0, work_.micros - 2 * work_.pipeline + rank + 1); }

  std::vector<RankCost> pipeline_ranks() const {
    std::vector<RankCost> ranks;
    for (int rank = 0; rank < work_.pipeline; ++rank) ranks.push_back(rank_cost(rank));
    return ranks;
  }

  double gradient_bytes() const { return trifold::gradient_bytes(software_, work_); }

  HeldWeights embedding_weights() const { return without_tokens(costs_.embedding.weights); }
  HeldWeights embedding_trained() const {
    const HeldWeights& trained = costs_.embedding.trained;
    return trained.dense > 0 ? without_tokens(trained) : trained;
  }
  HeldWeights without_tokens(HeldWeights weights) const {
    if (work_.tokens_at_head) weights.dense -= work_.vocabulary * work_.hidden / work_.tensor;
    return weights;
  }

  double gather(const HeldWeights& weights) const {
    return gather_seconds(hardware_, software_, work_, weights, work_.element_bytes);
  }

  // Neither the first gather nor gathers of the embedding overlap with computation.
  double once_a_step(const RankCost& rank) const {
    if (work_.pipeline > 1) return gather(rank.weights);
    const HeldWeights head = costs_.head_at_embedding();
    const HeldWeights ends{embedding_weights().dense + head.dense, head.experts};
    HeldWeights trained = embedding_trained();
    add(trained, costs_.trained_at_embedding(), 1);
    return work_.micros * (gather(costs_.layers.back().weights) + gather(ends) +
                           scatter_seconds(hardware_, software_, work_, trained, gradient_bytes()));
  }

  // Both halves of a pair wait until both can begin: the bubble is, for each chunk, a pair and a backward less three
  // weight gradients (DeepSeek-AI, arXiv 2412.19437, table 2).
  double bubble_of_turns(const RankCost& rank) const {
    const double weight = rank.compute.weight + rank.tensor.weight + rank.context.weight;
    const double forward = rank.compute.forward + rank.tensor.forward + rank.context.forward;
    const double backward = rank.all() - forward;
    return (work_.pipeline - 1) * std::max(0.0, forward + 2 * backward - rank.hidden - 3 * weight) /
           work_.chunks;
  }

  // The share of a micro-batch's time, forward and backward, for which other ranks wait.
  double bubble_share(const RankCost& rank) const {
    const double weight = rank.compute.weight + rank.tensor.weight;
    const double share = weight / rank.all();
    switch (work_.schedule) {
      case Schedule::Interleaved:
        return 1.0 / work_.chunks;
      case Schedule::ZbH1:
        return std::max(0.0, 1 - 2 * share);
      case Schedule::ZbH2:
      case Schedule::ZbV:
      case Schedule::DualPipeV:
      case Schedule::Auto:  // with the activations of zb-h2, which it may keep unless limited
        return std::max(0.0, 1 - 3 * share);
      case Schedule::PipeDream:
      case Schedule::PipeDream2BW:
        return 0;
      default:
        return 1;
    }
  }

  double messages(const RankCost& slowest) const {
    if (work_.pipeline < 2) return 0;
    const double one = stage_message_seconds(hardware_, software_, work_);
    double waits = software_.overlap_messages ? 0 : 2 * work_.micros * work_.chunks * one;
    // Ranks alternate in step: a pair waits for the messages of the neighbours' previous pairs.
    if (work_.takes_turns)
      waits = std::max(waits, (of_first_chunk(0) + of_second_chunk(0)) * one);
    else if (software_.overlap_messages)
      waits = (work_.micros - 1) * waits_of_micro(slowest, one);
    return waits + 2 * (work_.pipeline - 1) * one;
  }

  // The delay of a micro-batch by messages of `one` seconds that overlap with computation. In 1F1B a rank has as many
  // micro-batches in flight as there are stages from it on: each must reach the last stage and return before the next
  // one may begin. Zero-bubble schedules fill that time with weight gradients or more micro-batches. With several
  // chunks, neighbours exchange the messages of all chunks one after the other. The fractions that hide them were taken
  // from the simulator (tests/unit/plan_messages_test.cpp).
  double waits_of_micro(const RankCost& rank, double one) const {
    const double all = rank.busy();
    const double forward = rank.compute.forward + rank.tensor.forward + rank.context.forward;
    const double weight = rank.compute.weight + rank.tensor.weight + rank.context.weight;
    const double round_trip = 2.0 * (work_.pipeline - 1) / work_.pipeline * one;
    const auto beyond = [](double sent, double hidden) { return std::max(0.0, sent - hidden); };
    switch (work_.schedule) {
      case Schedule::Gpipe:
        return beyond(one, forward) + beyond(one, all - forward);
      case Schedule::ZbH1:
        return beyond(round_trip, weight / 2);
      case Schedule::ZbH2:
      case Schedule::Auto:
        return beyond(round_trip, all / 2);
      case Schedule::Interleaved: {
        const double ranks = work_.pipeline;
        return beyond(2 * work_.chunks * (1 - 1 / (ranks * ranks)) * one, all / 4);
      }
      case Schedule::ZbV:
      case Schedule::DualPipeV: {
        const double sent = std::min(4.0, 2.0 * (work_.pipeline - 1));  // the turn of the V sends nothing
        return beyond(sent * one, sent / 8 * all);
      }
      default:
        return round_trip;
    }
  }

  double data_part(const RankCost& rank) const {
    if (shards_weights() && work_.pipeline == 1) return 0;  // layer by layer
    return data_seconds(hardware_, software_, work_, rank.trained,
                        rank.compute.backward() + rank.tensor.backward() + rank.context.backward());
  }

  const Hardware& hardware_;
  const Software& software_;
  const Workload& work_;
  const BlockCosts& costs_;
};

}  // namespace

std::vector<std::pair<const char*, double>> named_parts(const StepTime& time) {
  return {{"compute", time.compute}, {"tensor", time.tensor}, {"context", time.context},
          {"weights", time.weights}, {"bubble", time.bubble}, {"messages", time.messages},
          {"data", time.data},       {"update", time.update}};
}

StepTime step_time(const Hardware& hardware, const Software& software, const Workload& work,
                   const BlockCosts& costs) {
  return Closed(hardware, software, work, costs).result();
}

GatherSeconds layer_gathers(const Hardware& hardware, const Software& software, const Workload& work,
                            const BlockCost& layer) {
  if (!shards_weights(work)) return {};
  const PartSeconds seconds = layer.all();
  const HeldWeights& held = layer.weights;
  const double weights = gather_seconds(hardware, software, work, held, work.element_bytes);
  const double gradients =
      scatter_seconds(hardware, software, work, layer.trained, gradient_bytes(software, work));
  const auto beside = [&](double computing, double moving) {
    return std::max(moving - computing, 0.0) + hardware.contention * std::min(computing, moving);
  };
  return {beside(seconds.forward, weights), beside(seconds.backward(), weights + gradients)};
}

double stage_message_seconds(const Hardware& hardware, const Software& software, const Workload& work) {
  const double cut = work.sequence_parallel ? 1 : software.scatter_messages;
  const double bytes = work.element_bytes * work.rows() * work.hidden;
  return message_seconds(hardware, work, bytes * (1 - cut + cut / work.tensor));
}

double data_seconds(const Hardware& hardware, const Software& software, const Workload& work,
                    const HeldWeights& weights, double backward) {
  const double gradient = gradient_bytes(software, work);
  const double returned = work.zero_stage > 0 ? work.element_bytes : gradient;
  const double scatter = scatter_seconds(hardware, software, work, weights, gradient);
  const double gather =
      work.zero_stage == 3 ? 0 : gather_seconds(hardware, software, work, weights, returned);
  const double hiding = (work.pipeline > 1 ? 0.5 / work.chunks : 0.8) * backward;
  const auto left = [&](double sums) {
    constexpr double kNeverHidden = 0.15;
    return software.overlap_gradients ? std::max(sums - hiding, kNeverHidden * sums) : sums;
  };
  // If gradients are reduced after each micro-batch, the weights are still gathered once, after the update, without
  // overlap.
  return work.reduces_each ? work.micros * left(scatter) + gather : left(scatter + gather);
}

double update_seconds(const Hardware& hardware, const Workload& work, const HeldWeights& weights) {
  const auto slice_of = [&](double count, double ranks) {
    return work.zero_stage > 0 ? count * work.groups_among(ranks) / ranks : count;
  };
  // With one data-parallel rank nothing is sharded, not even experts.
  const double slice = work.data_ranks() > 1 ? slice_of(weights.dense, work.data_ranks()) +
                                                   slice_of(weights.experts, work.expert_data_ranks())
                                             : weights.all();
  const double held = work.zero_stage == 3 ? slice : weights.all();
  return pass_seconds(hardware, hardware.update_bytes * slice + hardware.weight_bytes * held);
}

}  // namespace trifold
