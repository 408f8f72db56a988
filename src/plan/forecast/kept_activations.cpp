#include "plan/forecast/kept_activations.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.h"

namespace trifold {

namespace {

// Bytes per row.
class Rows {
 public:
  Rows(const Software& software, const Workload& work)
      : software_(software),
        work_(work),
        queries_(work.heads * work.head_width),
        keys_(work.key_heads * work.head_width),
        gates_(work.gated ? 2 : 1) {}

  // Whether norms keep a copy of their input instead of the input itself. LayerNorm is one operation in every program.
  bool copies_norms() const { return eager() && work_.rms_norm && !software_.fused_norms; }
  double stream() const { return of(work_.hidden) * along_rows(); }
  double layer() const { return norms(2) + attention() + inner() + masks(2); }

  // Bytes of a recomputed layer.
  double recomputed_layer() const {
    if (!software_.recompute_products) return stream();
    return stream() + attention_output() + kept_products();
  }

  // Bytes of the outputs that are kept so that the requested fraction of the products is recomputed: in the order of
  // computation, the first of every 1 / kept products.
  double kept_products() const {
    std::vector<double> outputs{across(queries_), across(keys_), across(keys_), along_rows() * work_.hidden};
    outputs.insert(outputs.end(), static_cast<size_t>(gates_), across(work_.inner));
    outputs.push_back(along_rows() * work_.hidden);
    const double kept = 1 - software_.recompute_fraction;
    double elements = 0;
    for (size_t i = 0; i < outputs.size(); ++i)
      if (std::ceil(kept * static_cast<double>(i + 1)) > std::ceil(kept * static_cast<double>(i)))
        elements += outputs[i];
    return of(elements);
  }

  // Bytes of a layer that weight gradients read.
  double product_inputs() const {
    return norm_outputs(2) + input_of(across(queries_)) + (compiled() ? 0 : input_of(across(work_.inner)));
  }

  double held() const {
    return of(across(queries_ + 2 * keys_ + gates_ * work_.inner) + 2 * along_rows() * work_.hidden);
  }

  // Gradients of the inner width, and of scores in memory.
  double passing() const { return of(across(gates_ * work_.inner)) + (unfused() ? of(scores()) : 0); }

  double head() const { return norms(1); }
  double embedding() const { return kIdBytes + masks(1); }
  double loss() const {
    const double counted = fused() ? work_.element_bytes + 8 : 12;
    return (software_.loss_bytes > 0 ? software_.loss_bytes : counted) * across(work_.vocabulary);
  }

 private:
  static constexpr double kIdBytes = 8;

  bool fused() const { return software_.activations == KeptActivations::Fused; }
  bool compiled() const { return software_.activations == KeptActivations::Compiled; }
  bool eager() const { return software_.activations == KeptActivations::Eager; }
  bool unfused() const { return software_.attention == AttentionKernel::Unfused; }

  double of(double elements) const { return work_.element_bytes * elements; }
  double input_of(double elements) const {
    return software_.input_bytes > 0 ? software_.input_bytes * elements : of(elements);
  }
  double across(double width) const { return width / work_.tensor; }
  double along_rows() const { return work_.sequence_parallel ? 1 / work_.tensor : 1; }

  // Bytes of norms and of the inputs of the products that follow them.
  double norms(double count) const {
    const double copy = std::max(work_.element_bytes, 4.0) * work_.hidden * along_rows();
    return count * (copies_norms() ? copy + stream() : stream()) + norm_outputs(count);
  }

  double norm_outputs(double count) const {
    const bool gathered = software_.gathered_inputs && work_.sequence_parallel && work_.tensor > 1;
    if (compiled() && !gathered) return 0;
    return count * input_of(work_.hidden) * (gathered ? 1 : along_rows());
  }

  // Bytes of attention's output, with the sums that fused kernels keep for each row of scores.
  double attention_output() const {
    constexpr double kSumBytes = 4;
    return of(across(queries_)) + (unfused() ? 0 : kSumBytes * across(work_.heads));
  }

  double attention() const {
    const double both = eager() ? queries_ : keys_;
    const double separate = software_.input_bytes > 0 ? input_of(across(queries_)) : 0;
    return of(across(queries_ + 2 * both)) + attention_output() + separate + kept_scores();
  }

  double scores() const { return across(work_.heads) * work_.sequence; }
  double kept_scores() const {
    if (!unfused() || work_.recompute == RecomputeGranularity::Selective) return 0;
    return of(scores()) + (work_.attention_dropout ? of(scores()) + scores() : 0);
  }

  double inner() const {
    const double width = across(work_.inner);
    if (compiled()) return of(gates_ * width);
    const double activated = eager() && work_.gated ? of(width) : 0;  // before it is multiplied with the gate
    return of(gates_ * width) + activated + input_of(width);
  }

  double masks(double count) const { return work_.hidden_dropout ? count * work_.hidden * along_rows() : 0; }

  const Software& software_;
  const Workload& work_;
  double queries_, keys_, gates_;
};

}  // namespace

KeptBytes kept_bytes(const Software& software, const Workload& work) {
  if (software.activations == KeptActivations::Own)
    bad_input(
        "what Trifold keeps is counted in dry runs: --assume activations=fused, compiled or eager describe others");
  if (work.experts > 0 || work.latent)
    bad_input("--assume activations describes dense layers, without experts and latent attention");
  const Rows each(software, work);
  const bool recomputes = work.recompute == RecomputeGranularity::Full && software.recompute_fraction > 0;
  const double fraction = !recomputes ? 0 : software.recompute_products ? 1 : software.recompute_fraction;
  const double whole = each.layer(), recomputed = each.recomputed_layer();
  const double rows = work.rows();
  KeptBytes bytes;
  bytes.layer = rows * (fraction * recomputed + (1 - fraction) * whole);
  bytes.input = rows * each.stream() * (each.copies_norms() ? fraction : 1);
  bytes.held = rows * each.held();
  bytes.freed = rows * (1 - fraction) * (whole - each.product_inputs());
  bytes.passing = rows * (each.passing() + (recomputes ? std::max(whole - recomputed, 0.0) : 0));
  bytes.boundary = rows * each.stream();
  bytes.embedding = rows * each.embedding();
  bytes.head = rows * each.head();
  bytes.loss = rows * each.loss();
  return bytes;
}

}  // namespace trifold
