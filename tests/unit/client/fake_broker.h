#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "client/session/figures.h"
#include "cuda/memory.h"
#include "tests/unit/client/lane/fake_lane.h"

namespace gpumem::client::test {

/// The folder of the simulated machine of this test program: 2 devices of 64 MiB.
std::filesystem::path simulated_machine();

/// A broker of one session that lends simulated memory to whoever asks, with faults to order.
class FakeBroker {
 public:
  FakeBroker();

  std::string folder() const { return lane_.folder(); }
  /// Ends the lane: the broker is gone.
  void hang_up();
  /// Reads nothing more, and answers nothing, until start_answering().
  void stop_answering();
  void start_answering();

  std::size_t leases_out() const;
  std::size_t slices_open() const;
  std::size_t growths() const;
  /// Of the first device, as the driver sees it when every growth has been answered.
  std::uint64_t in_use();
  /// Blocks until `count` grants have been accepted.
  void await_accepted(std::size_t count);
  /// The requests, and the declared charges, the latest last.
  std::vector<lane::Grow> requests() const;
  std::vector<lane::Charge> charges() const;

  /// Asks the session for `bytes` of device `ordinal` until `deadline`, and rings the doorbell. Bytes that
  /// come back are subtracted.
  void ask_back(Bytes bytes, std::chrono::nanoseconds deadline, std::size_t ordinal = 0);
  /// As ask_back(), without ringing the doorbell.
  void write_pressure(Bytes bytes, std::chrono::nanoseconds deadline, std::size_t ordinal = 0);
  void ring();
  /// Closes the doorbell.
  void drop_bell();
  std::uint64_t asked_back(std::size_t ordinal = 0) const;
  /// How often the session has said that it has no more, and blocks until it has said so `count` times.
  std::size_t spent(std::size_t ordinal = 0) const;
  void await_spent(std::size_t count, std::size_t ordinal = 0);

  using IsCancelled = std::function<bool()>;
  // The faults. Set before the call that they are for.
  std::vector<std::uint64_t> extent_sizes;                       ///< of the next grants; empty: 2 MiB each
  std::uint64_t most = ~std::uint64_t{0};                        ///< that it lends to one part of a request
  std::size_t leases_in_frame = 3;                               ///< at most
  std::function<void(std::vector<lane::GrantedLease>&)> tamper;  ///< with a grant, before it is sent
  std::function<void()> before_grant;                            ///< runs while a growth waits
  std::function<std::optional<lane::Failed>(const IsCancelled&)> refuse_growth;
  std::function<std::optional<lane::Failed>()> refuse_return;

 private:
  struct Loan {
    std::uint64_t size;
    std::size_t ordinal;
    cuda::Allocation memory;
  };

  void serve_lane(int socket);
  void greet(int socket);
  bool serve(const Said& said);
  void await_answering();
  void open_slice(const Said& said);
  void close_slice(const Said& said);
  void take_back(const Said& said);
  void charge(const Said& said);
  void start_growth(const Said& said);
  void grow(std::uint64_t number, const lane::Grow& request);
  bool enough_for(const lane::Grow& request) const;
  bool knows_slices_of(const lane::Grow& request) const;
  std::vector<lane::GrantedLease> lend(const lane::Grow& request);
  void lend_part(const lane::GrowPart& part, std::vector<lane::GrantedLease>& leases);
  void send_grant(std::uint64_t request, const std::vector<lane::GrantedLease>& leases,
                  const std::vector<UniqueFd>& exported);
  template <class Body>
  void answer(const Said& said, const Body& body) {
    send_frame(lane_socket_, body, said.header.request);
  }
  void publish();

  const cuda::Driver* driver_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool answering_ = true;
  bool ended_ = false;
  std::uint64_t last_id_ = 0;
  std::map<std::uint64_t, std::size_t> slices_;  ///< to the ordinals of their devices
  std::vector<lane::Grow> requests_;
  std::vector<lane::Charge> charges_;
  std::map<std::size_t, std::size_t> spent_;  ///< by index in the shared pages
  std::set<std::uint64_t> cancelled_;         ///< requests
  UniqueFd page_file_;
  SharedPage<BrokerPage> page_;
  BrokerFigures figures_{};
  UniqueFd doorbell_;
  std::map<std::uint64_t, Loan> loans_;
  std::set<std::uint64_t> accepted_;
  std::vector<std::thread> growing_;
  std::size_t unanswered_ = 0;  ///< growths
  int lane_socket_ = -1;
  FakeLane lane_;
};

}  // namespace gpumem::client::test
