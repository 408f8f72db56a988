// Where the first number of a recommender's step that is infinite or NaN is.
#include <cmath>

#include "train/finite_search.h"
#include "train/recommender.h"

namespace trifold {

// Passes what layers and tables show on to a FiniteSearch, in the order in which it is computed. All of it
// has a row for each sample of this rank.
class Recommender::Search final : public StepWatch {
 public:
  Search(const Recommender& model, FiniteSearch& search) : model_(model), search_(search) {}

  void see(std::string_view layer, std::string_view what, Tensor tensor, Stream& stream) override {
    if (layer == "tables") return see_vectors(tensor, stream);
    search_.look_at_rows(fmt::format("the {} of {}", what, layer), tensor, 0, tensor.last_dim(), stream);
  }

 private:
  void see_vectors(Tensor features, Stream& stream) {
    const int64_t width = model_.setup_.model.width;
    for (int t = 0; t < model_.setup_.schema.table_count(); ++t) {
      const int64_t column = model_.placement_.feature_column(t);
      search_.look_at_rows("the vectors of table " + model_.setup_.schema.table(t).name, features, column,
                           column + width, stream);
    }
  }

  const Recommender& model_;
  FiniteSearch& search_;
};

void Recommender::explain(const StepState& failed) {
  synchronize();
  FiniteSearch search(world_, mesh_, ops_, "the epoch");
  Search watch(*this, search);
  const ClickBatch& batch = failed.fetched.clicks.batch();
  for (int i = 0; i < model_.params.size(); ++i)
    search.look("the weight " + model_.params[{i}].shard.name, weights_.weight({i}), compute_);
  for (size_t t = 0; t < batch.id_weights.size(); ++t)
    search.look_on_host("the weights of ids of table " + setup_.schema.tables[t].name, batch.id_weights[t]);
  search.set_samples({batch.first_sample, samples_});
  if (setup_.model.has_bottom())
    search.look_at_rows("the dense numbers", failed.fetched.rows.dense, 0,
                        failed.fetched.rows.dense.last_dim(), compute_);

  repeat(failed, watch);
  search.set_samples({});
  for (const FlatLayout::Unit& unit : layout_.units())
    for (const FlatLayout::Segment& segment : grads_.segments(unit))
      search.look("the gradient of " + layout_.params()[segment.id].shard.name + ", summed over the ranks",
                  grads_.summed(segment), compute_);
  const bool of_loss = !std::isfinite(failed.loss);
  throw Error(
      fmt::format("step {}: the {} is {}; {}. The weights and the optimizer's state were not changed. A "
                  "smaller learning rate, or more warm-up, may help",
                  failed.rule.step, of_loss ? "loss" : "norm of the MLPs' gradient",
                  not_finite_text(of_loss ? failed.loss : grad_norm_), search.verdict(compute_)),
      ErrorKind::Agreed);
}

}  // namespace trifold
