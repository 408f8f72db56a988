#include "text/bad_records.h"

#include "core/error.h"

namespace trifold {

namespace {

constexpr size_t kMostReported = 20;

}  // namespace

bool BadRecords::wants_line() const {
  const std::lock_guard lock(mutex_);
  return !skips_ || places_.size() < kMostReported || std::ssize(places_) >= most_;
}

void BadRecords::add(const std::string& file, int64_t offset, const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (!places_.emplace(file, offset).second) return;
  if (std::ssize(places_) > most_)
    bad_input("{}; {} record{} of the data could not be read, but --max-bad-records allows {}", why,
              places_.size(), places_.size() == 1 ? "" : "s", most_);
  if (places_.size() <= kMostReported)
    news_.push_back("skipped a record of the data: " + why);
  else
    ++unreported_;
}

std::vector<std::string> BadRecords::take_news() {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> news = std::move(news_);
  news_.clear();
  if (unreported_ > 0)
    news.push_back(
        fmt::format("skipped {} more records of the data, {} in all so far", unreported_, places_.size()));
  unreported_ = 0;
  return news;
}

}  // namespace trifold
