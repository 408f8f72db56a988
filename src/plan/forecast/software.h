// Software describes how a training program carries out a step, as far as it affects the step's time. The default is
// Trifold. Other values describe other programs, so that forecasts can be compared with published runs; `trifold plan
// --assume KEY=VALUE` sets them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trifold {

// How attention is computed: with fused kernels tuned for the device (cuDNN), with FlashAttention kernels not tuned for
// it, or as batched products with the scores in memory.
enum class AttentionKernel { Fused, Flash, Unfused };

struct Software {
  AttentionKernel attention = AttentionKernel::Fused;
  bool fused_elementwise = true;  // norms, residual sums, dropout and activations are fused kernels
  double backward_overlap = 0;    // fraction of tensor collectives that overlap with weight gradients
  double tensor_overlap = 0;      // share of all tensor collectives that overlap with the products they feed
  bool overlap_gradients = true;  // data-parallel sums overlap with the last backward
  bool overlap_messages = true;   // messages between stages overlap with computation
  bool scatter_messages = false;  // tensor ranks send one part each and all-gather it (arXiv 2104.04473, 4.1)
  bool accumulate_in_product = true;   // weight gradients are accumulated by the product
  double gradient_bytes = 0;           // bytes of a gradient on the network; 0: as the configuration says
  double adapters_per_collective = 0;  // adapters of a node that a collective uses; 0: one per rank
  double recompute_fraction = 1;       // fraction of the layers that are recomputed
  double context = 1;                  // context-parallel ranks of another program; 1: as the options say
  bool balanced_context = true;  // each has rows from both ends of a sample, so all have equally many scores
};

// The keys that `set_value` knows, with their meanings for --help and messages.
struct SoftwareKey {
  std::string_view key, values, help;
};
std::vector<SoftwareKey> software_keys();

// Applies "KEY=VALUE". Throws Error(BadInput) for an unknown key and for a value out of its range.
void set_value(Software& software, const std::string& assignment);

}  // namespace trifold
