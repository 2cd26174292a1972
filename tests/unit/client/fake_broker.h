#pragma once
#include <grpcpp/server.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "client/shared_page.h"
#include "cuda/memory.h"
#include "gpumem/v1/broker.grpc.pb.h"
#include "tests/unit/client/fake_lane.h"

namespace gpumem::client::test {

/// The folder of the simulated machine of this test program: 2 devices of 64 MiB.
std::filesystem::path simulated_machine();

/// A broker of one session that lends simulated memory to whoever asks, with faults to order.
class FakeBroker final : public v1::Broker::Service {
 public:
  FakeBroker();
  ~FakeBroker() override;

  std::string folder() const { return lane_.folder(); }
  /// Ends the gRPC server: the broker is gone.
  void stop_answering();
  /// Starts it again.
  void start_answering();

  std::size_t leases_out() const;
  std::size_t slices_open() const;
  std::size_t growths() const;
  std::uint64_t in_use() const;  ///< of the first device, as the driver sees it
  /// Blocks until `count` grants have been accepted.
  void await_accepted(std::size_t count);
  /// What was asked for and declared, the latest last.
  std::vector<v1::GrowRequest> requests() const;
  std::vector<v1::ChargeRequest> charges() const;

  /// Asks the session for `bytes` of device `ordinal` until `deadline`, and rings the doorbell. What comes
  /// back is asked for no longer.
  void ask_back(Bytes bytes, std::chrono::nanoseconds deadline, std::size_t ordinal = 0);
  /// The same, without the doorbell.
  void write_pressure(Bytes bytes, std::chrono::nanoseconds deadline, std::size_t ordinal = 0);
  void ring();
  /// Closes the doorbell.
  void drop_bell();
  std::uint64_t asked_back(std::size_t ordinal = 0) const;
  /// How often the session has said that it has no more, and blocks until it has said so `count` times.
  std::size_t spent(std::size_t ordinal = 0) const;
  void await_spent(std::size_t count, std::size_t ordinal = 0);

  // The faults. Set before the call that they are for.
  std::vector<std::uint64_t> extent_sizes;        ///< of the next grants; empty: 2 MiB each
  std::uint64_t most = ~std::uint64_t{0};         ///< that it lends to one part of a request
  std::function<void(v1::GrowResponse&)> tamper;  ///< with the answer, after the offers have been sent
  std::function<void()> before_grant;             ///< runs while a growth waits
  std::function<grpc::Status(grpc::ServerContext&)> refuse_growth;
  std::function<grpc::Status()> refuse_return;  ///< OK: does not refuse

 private:
  struct Loan {
    std::uint64_t size;
    std::size_t ordinal;
    cuda::Allocation memory;
  };

  grpc::Status OpenSlice(grpc::ServerContext*, const v1::OpenSliceRequest*, v1::OpenSliceResponse*) override;
  grpc::Status Grow(grpc::ServerContext*, const v1::GrowRequest*, v1::GrowResponse*) override;
  grpc::Status Return(grpc::ServerContext*, const v1::ReturnRequest*, v1::ReturnResponse*) override;
  grpc::Status CloseSlice(grpc::ServerContext*, const v1::CloseSliceRequest*,
                          v1::CloseSliceResponse*) override;
  grpc::Status Charge(grpc::ServerContext*, const v1::ChargeRequest*, v1::ChargeResponse*) override;
  grpc::Status Ping(grpc::ServerContext*, const v1::PingRequest*, v1::PingResponse*) override;

  void serve_lane(int socket);
  bool enough_for(const v1::GrowRequest& request) const;
  void lend(const v1::GrowRequest& request, v1::GrowResponse& response);
  void lend_part(const v1::GrowPart& part, v1::GrowResponse& response);
  void publish();
  void offer(std::uint64_t grant, const std::vector<std::uint64_t>& leases);

  const cuda::Driver* driver_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t last_id_ = 0;
  std::map<std::uint64_t, std::size_t> slices_;  ///< to the ordinals of their devices
  std::vector<v1::GrowRequest> requests_;
  std::vector<v1::ChargeRequest> charges_;
  std::map<std::size_t, std::size_t> spent_;  ///< by index in the shared pages
  UniqueFd page_file_;
  SharedPage<BrokerPage> page_;
  BrokerFigures figures_{};
  UniqueFd doorbell_;
  std::map<std::uint64_t, Loan> loans_;
  std::set<std::uint64_t> accepted_;
  int lane_socket_ = -1;
  FakeLane lane_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace gpumem::client::test
