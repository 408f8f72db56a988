#include "plan/forecast/work_cost.h"

#include <algorithm>
#include <vector>

#include "mesh/mesh.h"

namespace trifold {

namespace {

bool is_over(const Work& work, AxisSet axes) {
  return work.kind == Work::Kind::Collective && work.group == axes.bits();
}

// Runs the streams of a list, each in its order.
class Streams {
 public:
  explicit Streams(std::span<const Work> list) : list_(list), ends_(list.size()) {
    int most = 0;
    for (const Work& work : list) most = std::max({most, work.stream, work.other});
    now_.resize(static_cast<size_t>(most) + 1);
  }

  void run(size_t index, double seconds) { end(index, now_of(list_[index].stream) += seconds); }
  // Adds the seconds to all streams.
  void stop_all(size_t index, double seconds) {
    const double all = latest() + seconds;
    std::fill(now_.begin(), now_.end(), all);
    end(index, all);
  }
  void wait(size_t index) {
    const Work& work = list_[index];
    double& now = now_of(work.stream);
    for (size_t before = std::min(work.until, index); before-- > 0;)
      if (list_[before].stream == work.other) {
        now = std::max(now, ends_[before]);
        break;
      }
    end(index, now);
  }
  double latest() const { return *std::max_element(now_.begin(), now_.end()); }

 private:
  double& now_of(int stream) { return now_[static_cast<size_t>(stream)]; }
  void end(size_t index, double at) { ends_[index] = at; }

  std::span<const Work> list_;
  std::vector<double> ends_, now_;
};

}  // namespace

ListSeconds seconds_of(std::span<const Work> list, const WorkPrices& prices) {
  ListSeconds sum;
  Streams streams(list);
  double over_context = 0;
  for (size_t index = 0; index < list.size(); ++index) {
    const Work& work = list[index];
    if (work.kind == Work::Kind::Wait) {
      streams.wait(index);
      continue;
    }
    const double seconds = work.times * prices.seconds(work);
    if (work.kind != Work::Kind::Collective) {
      sum.compute += seconds;
      streams.run(index, seconds);
    } else if (is_over(work, {Axis::Cp})) {
      over_context += seconds;
      streams.run(index, seconds);
    } else {
      const double waited = seconds * prices.exposed(work);
      sum.tensor += waited;
      if (is_over(work, kExpertShareAxes)) sum.rows += waited;
      streams.stop_all(index, waited);
    }
  }
  const double exposed = std::clamp(streams.latest() - sum.compute - sum.tensor, 0.0, over_context);
  sum.context = exposed + prices.contention() * (over_context - exposed);
  sum.context_hidden = over_context - sum.context;
  return sum;
}

}  // namespace trifold
