#include "files/mapped_region.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

namespace trifold {

// An entry in a list that a handler may traverse at any time: nodes are never freed, only reused, and `begin` is set
// last and cleared first.
struct MappedRegionNode {
  std::atomic<const std::byte*> begin{nullptr};
  std::atomic<size_t> bytes{0};
  std::atomic<char*> path{nullptr};
  MappedRegionNode* next = nullptr;
};

namespace {

using Node = MappedRegionNode;

std::atomic<Node*> g_first{nullptr};  // a signal handler can reach nothing but a global

struct Unused {
  std::mutex mutex;
  std::vector<Node*> nodes;
};

Unused& unused() {
  static auto* const kUnused = new Unused;  // used by destructors of other globals
  return *kUnused;
}

Node* take_node() {
  Unused& all = unused();
  const std::lock_guard lock(all.mutex);
  if (!all.nodes.empty()) {
    Node* node = all.nodes.back();
    all.nodes.pop_back();
    return node;
  }
  auto* node = new Node;
  node->next = g_first.load();
  g_first.store(node);
  return node;
}

}  // namespace

MappedRegion::MappedRegion(const void* begin, size_t bytes, const std::string& path) : node_(take_node()) {
  node_->path = strdup(path.c_str());
  node_->bytes = bytes;
  node_->begin = static_cast<const std::byte*>(begin);
}

MappedRegion::~MappedRegion() {
  if (node_ == nullptr) return;
  node_->begin = nullptr;
  std::free(node_->path.exchange(nullptr));
  Unused& all = unused();
  const std::lock_guard lock(all.mutex);
  all.nodes.push_back(node_);
}

MappedRegion::MappedRegion(MappedRegion&& other) noexcept : node_(std::exchange(other.node_, nullptr)) {}

MappedRegion& MappedRegion::operator=(MappedRegion&& other) noexcept {
  std::swap(node_, other.node_);
  return *this;
}

FileLocation mapped_location(const void* address) noexcept {
  const auto* at = static_cast<const std::byte*>(address);
  for (const Node* node = g_first.load(); node != nullptr; node = node->next) {
    const std::byte* begin = node->begin;
    const size_t bytes = node->bytes;
    if (begin != nullptr && at >= begin && at < begin + bytes)
      return {node->path, at - begin, static_cast<int64_t>(bytes)};
  }
  return {};
}

}  // namespace trifold
