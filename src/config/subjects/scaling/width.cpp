#include "config/subjects/scaling/width.h"

#include "config/options/bounds.h"

namespace trifold {

void add_width(OptionTable& table, ModelConfig& model) {
  table
      .add(
          "mup-base-hidden-size", &model.mup_base_hidden_size,
          "The --hidden-size at which --lr, --weight-decay and --init-method-std were tuned: they are transferred to "
          "this model's width by the rules of muP (arXiv 2203.03466), which 'trifold plan' shows.")
      .range(1, kMaxSize)
      .also("mup-base-width")
      .also("scaling-base-hidden-size")
      .absent("no transfer: all parameters have the same rate")
      .needs({"optimizer", "adam"}, "whose rates the rules are for", "leave it out")
      .excludes("multi-latent-attention", "because the widths of latent vectors have no rule",
                "leave it out");
  table
      .add(
          "mup-base-head-dim", &model.mup_base_head_dim,
          "The width of a head at which hyperparameters were tuned: scores of attention are products of queries and "
          "keys times its square root over this model's width of a head, instead of one over the root of that.")
      .range(1, kMaxSize)
      .also("scaling-base-head-dim")
      .absent("scores as with any model")
      .needs("mup-base-hidden-size")
      .excludes("softmax-scale", "which is that factor", "leave one of them out");
}

}  // namespace trifold
