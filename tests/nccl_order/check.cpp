#include "nccl_order/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

namespace trifold::test {

using Kind = OrderEntry::Kind;

std::string to_string(const OrderEntry& entry) {
  switch (entry.kind) {
    case Kind::StreamWait:
      return fmt::format("stream {} waits for stream {}", entry.stream, entry.other);
    case Kind::HostWait:
      return fmt::format("the host waits for stream {}", entry.other);
    case Kind::Messages:
    case Kind::HostMessages: {
      std::string text = "messages";
      for (const OrderMessage& message : entry.messages)
        text += fmt::format(" {} {} ({} {})", message.sends ? "to" : "from", message.peer, message.count,
                            message.type);
      return text;
    }
    case Kind::Collective:
    case Kind::HostCall:
      break;
  }
  return fmt::format("{} of {} {}{}", entry.operation, entry.count, entry.type,
                     entry.root < 0 ? "" : fmt::format(" from {}", entry.root));
}

namespace {

// An entry of a rank.
struct EntryId {
  int rank = 0;
  size_t index = 0;
  auto operator<=>(const EntryId&) const = default;
};

bool is_collective(const OrderEntry& entry) {
  return entry.kind == Kind::Collective || entry.kind == Kind::HostCall;
}
bool has_messages(const OrderEntry& entry) {
  return entry.kind == Kind::Messages || entry.kind == Kind::HostMessages;
}
bool on_stream(const OrderEntry& entry) {
  return entry.kind == Kind::Collective || entry.kind == Kind::Messages || entry.kind == Kind::StreamWait;
}

bool same_call(const OrderEntry& a, const OrderEntry& b) {
  return std::tie(a.kind, a.operation, a.count, a.type, a.root) ==
         std::tie(b.kind, b.operation, b.count, b.type, b.root);
}

// The entries that belong together: the calls of a collective, and each send with its receive.
class Matching {
 public:
  explicit Matching(const OrderRecord& record) : record_(record) {
    for (size_t comm = 0; comm < record.comms.size(); ++comm) {
      match_collectives(static_cast<int>(comm));
      match_messages(static_cast<int>(comm));
    }
  }

  // The entries of others that this one waits for.
  const std::vector<EntryId>& peers(const EntryId& id) const {
    static const std::vector<EntryId> kNone;
    const auto found = peers_.find(id);
    return found == peers_.end() ? kNone : found->second;
  }
  std::vector<std::string> problems;

 private:
  const OrderEntry& entry(const EntryId& id) const {
    return record_.ranks[static_cast<size_t>(id.rank)][id.index];
  }

  // The entries of `comm` on a rank of the world for which `wanted` is true.
  template <class Wanted>
  std::vector<EntryId> entries_of(int comm, int rank, Wanted wanted) const {
    std::vector<EntryId> found;
    const auto& entries = record_.ranks[static_cast<size_t>(rank)];
    for (size_t i = 0; i < entries.size(); ++i)
      if (entries[i].comm == comm && wanted(entries[i])) found.push_back({rank, i});
    return found;
  }

  void match_collectives(int comm) {
    const OrderComm& of = record_.comms[static_cast<size_t>(comm)];
    std::vector<std::vector<EntryId>> calls;  // by rank
    size_t most = 0;
    for (const int rank : of.world_ranks) {
      calls.push_back(entries_of(comm, rank, is_collective));
      most = std::max(most, calls.back().size());
    }
    for (size_t call = 0; call < most; ++call)
      if (!match_call(of, call, calls)) return;  // what follows differs as well
  }

  bool match_call(const OrderComm& of, size_t call, const std::vector<std::vector<EntryId>>& calls) {
    const auto text = [&](size_t rank) {
      return call < calls[rank].size() ? to_string(entry(calls[rank][call])) : std::string("no call");
    };
    for (size_t rank = 1; rank < calls.size(); ++rank)
      if (call >= calls[0].size() || call >= calls[rank].size() ||
          !same_call(entry(calls[0][call]), entry(calls[rank][call]))) {
        problems.push_back(fmt::format("{}: call {} is {} on rank {} and {} on rank {}", of.name, call,
                                       text(0), of.world_ranks[0], text(rank), of.world_ranks[rank]));
        return false;
      }
    for (const auto& mine : calls)
      for (const auto& other : calls)
        if (mine[call] != other[call]) peers_[mine[call]].push_back(other[call]);
    return true;
  }

  struct Message {
    EntryId id;
    OrderMessage message;
  };

  void match_messages(int comm) {
    const OrderComm& of = record_.comms[static_cast<size_t>(comm)];
    std::map<std::pair<int, int>, std::vector<Message>> sent, received;  // by sender and receiver
    for (size_t rank = 0; rank < of.world_ranks.size(); ++rank)
      for (const EntryId& id : entries_of(comm, of.world_ranks[rank], has_messages))
        for (const OrderMessage& message : entry(id).messages) {
          const int me = static_cast<int>(rank);
          if (message.sends)
            sent[{me, message.peer}].push_back({id, message});
          else
            received[{message.peer, me}].push_back({id, message});
        }
    std::set<std::pair<int, int>> pairs;
    for (const auto& each : sent) pairs.insert(each.first);
    for (const auto& each : received) pairs.insert(each.first);
    for (const auto& pair : pairs) match_pair(of, pair, sent[pair], received[pair]);
  }

  void match_pair(const OrderComm& of, const std::pair<int, int>& pair, const std::vector<Message>& sent,
                  const std::vector<Message>& received) {
    const std::string where = fmt::format("{}: from rank {} to rank {}", of.name,
                                          of.world_ranks.at(static_cast<size_t>(pair.first)),
                                          of.world_ranks.at(static_cast<size_t>(pair.second)));
    if (sent.size() != received.size())
      problems.push_back(fmt::format("{}, {} sends but {} receives", where, sent.size(), received.size()));
    for (size_t i = 0; i < std::min(sent.size(), received.size()); ++i) {
      const Message& from = sent[i];
      const Message& to = received[i];
      if (from.message.count != to.message.count || from.message.type != to.message.type)
        problems.push_back(fmt::format("{}, message {} is sent as {} {} and received as {} {}", where, i,
                                       from.message.count, from.message.type, to.message.count,
                                       to.message.type));
      if (from.id == to.id) continue;
      peers_[from.id].push_back(to.id);
      peers_[to.id].push_back(from.id);
    }
  }

  const OrderRecord& record_;
  std::map<EntryId, std::vector<EntryId>> peers_;
};

// The orders between events, four for each entry.
class Orders {
 public:
  Orders(const OrderRecord& record, const Matching& matching, Blocking blocking)
      : record_(record), matching_(matching), blocking_(blocking) {
    size_t events = 0;
    for (const auto& entries : record.ranks) {
      first_.push_back(events);
      events += 4 * entries.size();
    }
    before_.resize(events);
    for (size_t rank = 0; rank < record.ranks.size(); ++rank) add_rank(static_cast<int>(rank));
  }

  // The events of one cycle in order, as texts; empty if there is none.
  std::vector<std::string> cycle() const {
    const std::optional<size_t> stuck = find_stuck();
    if (!stuck) return {};
    // Each stuck event has a stuck one before it: going back meets a cycle.
    std::vector<size_t> path;
    std::map<size_t, size_t> place;
    size_t at = *stuck;
    while (place.emplace(at, path.size()).second) {
      path.push_back(at);
      at =
          *std::find_if(before_[at].begin(), before_[at].end(), [&](size_t event) { return !ended_[event]; });
    }
    std::vector<std::string> texts;
    for (size_t i = path.size(); i-- > place[at];) texts.push_back(text_of(path[i]));
    texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
    return texts;
  }

 private:
  enum Event : size_t { Reached, Returned, Begun, Done };

  size_t event(const EntryId& id, Event which) const {
    return first_[static_cast<size_t>(id.rank)] + 4 * id.index + which;
  }
  void add(const EntryId& first, Event of_first, const EntryId& second, Event of_second) {
    before_[event(second, of_second)].push_back(event(first, of_first));
  }

  void add_rank(int rank) {
    const auto& entries = record_.ranks[static_cast<size_t>(rank)];
    std::map<int, EntryId> last_of_thread, last_of_comm;
    std::map<int, std::vector<size_t>> of_stream;
    std::set<std::tuple<int, bool, int>> connected;  // communicator, whether to send, peer; -1: collectives
    for (size_t i = 0; i < entries.size(); ++i) {
      const OrderEntry& entry = entries[i];
      const EntryId id{rank, i};
      add(id, Reached, id, Returned);
      add(id, Begun, id, Done);
      if (const auto last = last_of_thread.find(entry.thread); last != last_of_thread.end())
        add(last->second, Returned, id, Reached);
      last_of_thread[entry.thread] = id;
      if (entry.kind == Kind::HostCall || entry.kind == Kind::HostMessages)
        for (const EntryId& peer : matching_.peers(id)) add(peer, Reached, id, Returned);
      if (entry.kind == Kind::HostWait || entry.kind == Kind::StreamWait) {
        const std::vector<size_t>& waited = of_stream[entry.other];
        const auto end = std::lower_bound(waited.begin(), waited.end(), static_cast<size_t>(entry.until));
        if (end != waited.begin())
          add({rank, *std::prev(end)}, Done, id, entry.kind == Kind::HostWait ? Returned : Done);
      }
      if (!on_stream(entry)) continue;
      add(id, Reached, id, Begun);
      std::vector<size_t>& stream = of_stream[entry.stream];
      if (!stream.empty()) add({rank, stream.back()}, Done, id, Begun);
      stream.push_back(i);
      if (entry.kind == Kind::StreamWait) continue;
      if (const auto last = last_of_comm.find(entry.comm); last != last_of_comm.end())
        add(last->second, Done, id, Begun);
      last_of_comm[entry.comm] = id;
      for (const EntryId& peer : matching_.peers(id)) add(peer, Begun, id, Done);
      add_connections(id, entry, connected);
    }
  }

  // Of a call of NCCL that connects ranks: it returns when they have come, and runs after that.
  void add_connections(const EntryId& id, const OrderEntry& entry,
                       std::set<std::tuple<int, bool, int>>& connected) {
    bool blocks = false;
    if (entry.kind == Kind::Collective)
      blocks = connected.insert({entry.comm, false, -1}).second || blocking_ == Blocking::EveryCollective;
    std::set<int> new_peers;  // world ranks
    const OrderComm& comm = record_.comms[static_cast<size_t>(entry.comm)];
    for (const OrderMessage& message : entry.messages)
      if (connected.insert({entry.comm, message.sends, message.peer}).second)
        new_peers.insert(comm.world_ranks.at(static_cast<size_t>(message.peer)));
    if (!blocks && new_peers.empty()) return;
    for (const EntryId& peer : matching_.peers(id))
      if (blocks || new_peers.count(peer.rank) > 0) add(peer, Reached, id, Returned);
    add(id, Returned, id, Begun);
  }

  // Ends all events that can end; returns one that cannot.
  std::optional<size_t> find_stuck() const {
    std::vector<std::vector<size_t>> after(before_.size());
    std::vector<size_t> missing(before_.size()), ready;
    for (size_t to = 0; to < before_.size(); ++to) {
      missing[to] = before_[to].size();
      if (missing[to] == 0) ready.push_back(to);
      for (const size_t from : before_[to]) after[from].push_back(to);
    }
    ended_.assign(before_.size(), false);
    while (!ready.empty()) {
      const size_t at = ready.back();
      ready.pop_back();
      ended_[at] = true;
      for (const size_t next : after[at])
        if (--missing[next] == 0) ready.push_back(next);
    }
    const auto stuck = std::find(ended_.begin(), ended_.end(), false);
    if (stuck == ended_.end()) return {};
    return static_cast<size_t>(stuck - ended_.begin());
  }

  std::string text_of(size_t at) const {
    const auto after = std::upper_bound(first_.begin(), first_.end(), at);
    const auto rank = static_cast<size_t>(after - first_.begin()) - 1;
    const size_t index = (at - first_[rank]) / 4;
    const OrderEntry& entry = record_.ranks[rank][index];
    return fmt::format("rank {} entry {} ({}{}): {}", rank, index,
                       entry.comm < 0 ? "" : record_.comms[static_cast<size_t>(entry.comm)].name,
                       on_stream(entry) ? fmt::format(" stream {}", entry.stream) : "", to_string(entry));
  }

  const OrderRecord& record_;
  const Matching& matching_;
  const Blocking blocking_;
  std::vector<size_t> first_;                // event of each rank
  std::vector<std::vector<size_t>> before_;  // by event: the events that must end before it does
  mutable std::vector<bool> ended_;
};

}  // namespace

std::vector<std::string> order_problems(const OrderRecord& record, Blocking blocking) {
  const Matching matching(record);
  std::vector<std::string> problems = matching.problems;
  const std::vector<std::string> cycle = Orders(record, matching, blocking).cycle();
  if (cycle.empty()) return problems;
  std::string text = "these wait for each other:";
  for (const std::string& line : cycle) text += "\n  " + line;
  problems.push_back(text);
  return problems;
}

}  // namespace trifold::test
