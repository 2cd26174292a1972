#pragma once
#include <array>

#include "base/system/unique_fd.h"
#include "gpumem/result.h"
#include "shm/pages.h"

namespace gpumem::host {

/// The two shared pages of one session: memory files of fixed size, made and mapped by the broker. The
/// client gets descriptors; it cannot resize either file, nor map the broker's page for writing.
class SharedPages {
 public:
  static Result<SharedPages> create();
  SharedPages(SharedPages&& other) noexcept;
  SharedPages& operator=(SharedPages&&) = delete;
  ~SharedPages();

  void publish(const BrokerFigures& figures);
  const ClientPage& client_page() const { return *client_; }
  /// The broker's page, the client's page: for the Welcome, to be closed after it.
  std::array<UniqueFd, 2> take_descriptors();

 private:
  SharedPages() = default;

  BrokerPage* broker_ = nullptr;
  ClientPage* client_ = nullptr;
  UniqueFd broker_file_;
  UniqueFd client_file_;
};

/// Wakes a client whose page asks for memory back: a pipe whose writing end is the broker's alone. An eventfd
/// would be one open file for both, and its reader could make the writer block.
class Doorbell {
 public:
  /// Errors  kResourceExhausted: no descriptor left.
  static Result<Doorbell> create();

  /// Adds 8 bytes to what the client can read. Never blocks: a client that does not read is awake already.
  void ring() const;
  /// The reading end: for the Welcome, to be closed after it.
  UniqueFd take_descriptor() { return std::move(read_); }

 private:
  Doorbell() = default;

  UniqueFd write_;
  UniqueFd read_;
};

}  // namespace gpumem::host
