// Finds the first infinite or NaN number of a recommender's step.
#include "recommend/recommender.h"
#include "run/checks/finite_check.h"

namespace trifold {

// Also checks what a recommender has besides its blocks: the inputs, and the vectors of each table, which are inputs of
// the top block.
class Recommender::Search final : public FiniteCheck {
 public:
  Search(Recommender& model, const Fetched& fetched)
      : FiniteCheck({model.world_, model.mesh_, model.ops_, model.model_, model.layout_, model.grads_,
                     model.compute_, "the epoch", false},
                    model.watch_),
        model_(model),
        batch_(fetched.clicks.batch()) {
    const ClickSchema& schema = model.setup_.schema;
    go_before(0, kInputs);
    for (size_t t = 0; t < batch_.id_weights.size(); ++t)
      search().look_on_host("the weights of ids of table " + schema.tables[t].name, batch_.id_weights[t]);
    const Tensor dense = fetched.rows.dense;
    if (!model.setup_.model.has_bottom()) return;
    search().set_samples({batch_.first_sample, model.samples_});
    search().look_at_rows("the dense numbers", dense, 0, dense.last_dim(), model.compute_);
  }

 private:
  static constexpr int64_t kInputs = 1 << 19;  // places

  void look(std::string_view layer, std::string_view what, Tensor tensor, Stream& stream) override {
    if (layer != "tables") return FiniteCheck::look(layer, what, tensor, stream);
    go_before(static_cast<int>(model_.model_.blocks.size()) - 1, model_.setup_.schema.table_count());
    search().set_samples({batch_.first_sample, model_.samples_});
    look_at_vectors(*model_.groups_of_tables_[group_++ % model_.groups_of_tables_.size()], tensor, stream);
  }

  // Groups of tables are shown one after another.
  void look_at_vectors(const Tables& of, const Tensor& tensor, Stream& stream) {
    const Placement& placement = of.group.placement;
    const int64_t width = model_.setup_.model.row();
    const Tensor rows = tensor.reshape({model_.samples_, tensor.elements() / model_.samples_});
    for (size_t t = 0; t < placement.tables().size(); ++t)
      for (int64_t bag = 0; bag < of.group.bags; ++bag) {
        const int64_t column = bag * tensor.last_dim() + placement.feature_column(static_cast<int>(t));
        search().look_at_rows("the vectors of table " + placement.tables()[t].name, rows, column,
                              column + width, stream);
      }
  }

  size_t group_ = 0;
  const Recommender& model_;
  const ClickBatch& batch_;
};

void Recommender::explain(const StepState& failed) {
  synchronize();
  Search search(*this, failed.fetched);
  repeat(failed, search);
  throw search.error(failed.step, failed.loss, grad_norm_);
}

}  // namespace trifold
