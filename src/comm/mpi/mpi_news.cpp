// Messages between the ranks of an MPI world besides their data: that a rank has failed, and, after a
// time-out, what each rank is doing.
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "comm/mpi/mpi_world.h"

namespace trifold {

namespace {

constexpr std::chrono::milliseconds kLook{100};        // between two checks for news while no call waits
constexpr std::chrono::seconds kAnswers{2};            // time-out for the answers of other ranks
constexpr std::chrono::seconds kOthersTurn{4};         // how long another asking rank may take to report
constexpr std::chrono::seconds kUnwinding{4};          // time for a process to end without MPI_Abort
constexpr std::chrono::milliseconds kTelling{1000};    // time for a message to be sent
constexpr std::chrono::milliseconds kBetweenLooks{1};  // between two checks while waiting for answers
constexpr std::chrono::seconds kBeat{1};               // between two heartbeats

}  // namespace

void MpiWorld::News::set_text(std::string_view all) {
  std::memcpy(text, all.data(), std::min(all.size(), kTextBytes - 1));
}

void MpiWorld::News::set_place(std::string_view all) {
  std::memcpy(place, all.data(), std::min(all.size(), kPlaceBytes - 1));
}

void MpiWorld::learn_places() {
  constexpr size_t kPlace = 320;
  std::vector<char> all(kPlace * static_cast<size_t>(size_));
  std::string mine = this_process();
  mine.resize(kPlace - 1);
  mine.push_back(0);
  check_mpi(MPI_Allgather(mine.data(), static_cast<int>(kPlace), MPI_CHAR, all.data(),
                          static_cast<int>(kPlace), MPI_CHAR, comm_),
            "MPI_Allgather");
  for (size_t at = 0; at < all.size(); at += kPlace) {
    all[at + kPlace - 1] = 0;
    places_.emplace_back(&all[at]);
  }
}

void MpiWorld::expect_news() {
  if (!news_in_) news_in_ = std::make_unique<News>();
  MPI_Irecv(news_in_.get(), static_cast<int>(sizeof(News)), MPI_BYTE, MPI_ANY_SOURCE, tag_of(0, MpiTag::News),
            comm_, &news_request_);
}

void MpiWorld::look_for_news() {
  while (!broken()) {
    int arrived = 0;
    MPI_Status status;
    const int code = MPI_Test(&news_request_, &arrived, &status);
    if (code == MPI_SUCCESS && arrived == 0) return;
    if (const std::string problem = problem_of(code, status); !problem.empty()) {
      tell_others(fmt::format("rank {}: {}", rank_, problem));
      return set_broken(problem, ErrorKind::Failure);
    }
    News news = *news_in_;
    news.text[News::kTextBytes - 1] = 0;
    news.place[News::kPlaceBytes - 1] = 0;
    expect_news();
    take(news);
  }
}

std::string MpiWorld::problem_of(int code, const MPI_Status& status) const {
  int kind = MPI_SUCCESS;
  if (code != MPI_SUCCESS) MPI_Error_class(code, &kind);
  int bytes = 0;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  const News& news = *news_in_;
  const bool is_known = news.kind == News::Kind::Abort || news.kind == News::Kind::Ask ||
                        news.kind == News::Kind::Answer || news.kind == News::Kind::Beat;
  if (kind == MPI_SUCCESS && bytes == static_cast<int>(sizeof(News)) && is_known &&
      news.from == status.MPI_SOURCE)
    return {};
  return fmt::format(
      "news from rank {} are not as a rank sends them: they were damaged on their way, or that rank runs "
      "another program",
      status.MPI_SOURCE);
}

void MpiWorld::take(const News& news) {
  if (news.kind == News::Kind::Abort) return set_broken(news.text);
  if (news.kind == News::Kind::Beat) {
    heard_before_ = Clock::now();
    return;
  }
  const auto from = static_cast<size_t>(news.from);
  if (news.kind == News::Kind::Answer) {
    if (!asking_) return;
    RankReport& report = answers_[from].emplace(
        RankReport{news.from, places_[from], true, news.waits != 0, news.text, news.outside != 0,
                   news.saver_outside != 0, news.place, std::nullopt});
    if (news.last_sign >= 0) report.last_sign = news.last_sign;
    beats_heard_[(from + places_.size() - 1) % places_.size()] = news.before_beat;
    return;
  }
  if (asking_) asked_by_ = std::min(asked_by_, news.from);
  asked_at_ = Clock::now();
  const RankReport mine = own_report();
  News answer;
  answer.kind = News::Kind::Answer;
  answer.from = rank_;
  answer.waits = mine.waits ? 1 : 0;
  answer.outside = mine.outside ? 1 : 0;
  answer.saver_outside = mine.saver_outside ? 1 : 0;
  answer.last_sign = mine.last_sign.value_or(-1);
  answer.before_beat = seconds_since(heard_before_);
  answer.set_place(mine.place);
  answer.set_text(mine.doing);
  send_news(news.from, answer);
}

// Does not wait. The message stays in memory until the process ends, because MPI may read it until then.
void MpiWorld::send_news(int world_rank, const News& news) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Isend(new News(news), static_cast<int>(sizeof(News)), MPI_BYTE, world_rank, tag_of(0, MpiTag::News),
            comm_, &request);
  MPI_Request_free(&request);
}

// The message must be sent before this process ends, but a rank that has ended must not delay it.
void MpiWorld::tell_others(std::string_view why) {
  if (broken()) return;
  auto* news = new News;  // never freed: MPI may read it until the process ends
  news->from = rank_;
  news->set_text(why);
  std::vector<MPI_Request> requests;
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_)
      MPI_Isend(news, static_cast<int>(sizeof(News)), MPI_BYTE, peer, tag_of(0, MpiTag::News), comm_,
                &requests.emplace_back(MPI_REQUEST_NULL));
  const auto deadline = Clock::now() + std::min(timeout_, kTelling);
  for (int sent = 0; sent == 0 && Clock::now() < deadline;)
    MPI_Testall(static_cast<int>(requests.size()), requests.data(), &sent, MPI_STATUSES_IGNORE);
}

void MpiWorld::note(const Call& call, const std::shared_ptr<const std::string>& group, bool exchanges) {
  last_call_ = call;
  last_group_ = group;
  last_exchanges_ = exchanges;
  last_at_ = Clock::now();
}

std::pair<std::string, std::string> MpiWorld::own_waits() const {
  std::string hangs, waits;
  const auto add = [](std::string& all, const std::string& text) {
    all += (all.empty() ? "" : ", and ") + text;
  };
  for (const Wait& wait : waits_) {
    const double stopped = asking_ ? 0 : wait.clock.stopped();
    if (stopped > 0)
      add(hangs, stopped_text(wait.what(), stopped));
    else
      add(waits, waiting_text(wait.what(), wait.clock.waited()));
  }
  if (const double stopped = host_->stopped(); stopped > 0)
    add(hangs, stopped_text("a wait for its own work", stopped));
  return {hangs, waits};
}

RankReport MpiWorld::own_report() const {
  RankReport report{rank_, places_[static_cast<size_t>(rank_)], true, false, {}};
  const auto [hangs, waits] = own_waits();
  report.waits = hangs.empty() && !waits.empty() && host_->waits.load() > 0;
  if (!hangs.empty()) {
    report.doing = waits.empty() ? hangs : hangs + ", and " + waits;
  } else if (report.waits) {
    report.doing = waits;
  } else if (!last_group_) {
    report.doing = idle_text("", 0);
  } else {
    const std::string call = last_exchanges_ ? "exchange" : to_string(last_call_);
    report.doing = idle_text(fmt::format("{} in {}", call, *last_group_), seconds_since(last_at_));
  }
  add_outside(report, *host_);
  if (recorder_) add_place(report, *recorder_);
  return report;
}

bool MpiWorld::all_have_answered() const {
  return std::all_of(answers_.begin(), answers_.end(), [](const auto& answer) { return answer.has_value(); });
}

bool MpiWorld::leaves_it_to_another() const {
  return asking_ || (asked_at_ && Clock::now() - *asked_at_ < kOthersTurn);
}

std::optional<std::vector<RankReport>> MpiWorld::ask_all(std::unique_lock<std::mutex>& held) {
  asking_ = true;
  asked_by_ = rank_;
  answers_.assign(static_cast<size_t>(size_), std::nullopt);
  beats_heard_.assign(static_cast<size_t>(size_), std::nullopt);
  News question;
  question.kind = News::Kind::Ask;
  question.from = rank_;
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_) send_news(peer, question);
  answers_[static_cast<size_t>(rank_)] = own_report();
  beats_heard_[static_cast<size_t>((rank_ + size_ - 1) % size_)] = seconds_since(heard_before_);
  const auto end = Clock::now() + kAnswers;
  while (!broken() && asked_by_ == rank_ && !all_have_answered() && Clock::now() < end) {
    held.unlock();
    std::this_thread::sleep_for(kBetweenLooks);
    held.lock();
    look_for_news();
  }
  asking_ = false;
  if (broken() || asked_by_ != rank_) return std::nullopt;
  std::vector<RankReport> reports;
  for (int rank = 0; rank < size_; ++rank) {
    const auto at = static_cast<size_t>(rank);
    reports.push_back(
        answers_[at] ? *answers_[at]
                     : RankReport{rank, places_[at], false, false, {}, false, false, {}, beats_heard_[at]});
  }
  return reports;
}

std::string MpiWorld::status() {
  auto held = lock();
  if (broken() || leaves_it_to_another()) return "";
  const auto reports = ask_all(held);
  return reports ? rank_table(*reports) : "";
}

void MpiWorld::attach(std::shared_ptr<FlightRecorder> recorder) {
  const auto held = lock();
  recorder_ = std::move(recorder);
}

void MpiWorld::give_up(std::unique_lock<std::mutex>& held, FunctionRef<bool()> done, const std::string& what,
                       WaitClock& clock) {
  const auto reports = ask_all(held);
  if (!reports || done()) return;
  const bool outside = waits_outside(*reports, host_->saver.load() == std::this_thread::get_id());
  if (outside && clock.extend(kOutsideTimeouts * clock.limit())) return;
  const std::string why = time_out_text(*reports, rank_, clock.limit(), what, outside);
  if (last_words_ != nullptr) end_job(why);
  tell_others(why);
  set_broken(why);
  throw Error(why);
}

void MpiWorld::send_beat() {
  int sent = 1;
  if (beat_request_ != MPI_REQUEST_NULL) MPI_Test(&beat_request_, &sent, MPI_STATUS_IGNORE);
  if (sent == 0 || size_ == 1) return;
  MPI_Isend(beat_.get(), static_cast<int>(sizeof(News)), MPI_BYTE, (rank_ + 1) % size_,
            tag_of(0, MpiTag::News), comm_, &beat_request_);
}

// Other ranks may be stopped and never receive the message; the launcher ends them.
void MpiWorld::end_job(const std::string& why) {
  last_words_(why.c_str());
  MPI_Abort(MPI_COMM_WORLD, 1);
  _exit(1);
}

// Answers other ranks while this one computes, and ends the process if its rank does not return after an
// abort.
void MpiWorld::watch_loop() {
  std::unique_lock ending(watch_mutex_);
  auto next_beat = Clock::now();
  while (!watch_ends_.wait_for(ending, kLook, [this] { return ending_; })) {
    const auto held = lock();
    look_for_news();
    if (!broken() && Clock::now() >= next_beat) {
      send_beat();
      next_beat = Clock::now() + kBeat;
    }
    if (broken() && last_words_ != nullptr && Clock::now() - broken_at_ > kUnwinding)
      end_job(why_is_ours_ ? why_ : "");
  }
}

}  // namespace trifold
