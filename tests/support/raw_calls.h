#pragma once
#include <grpcpp/channel.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpumem/v1/broker.grpc.pb.h"
#include "tests/support/raw_lane.h"

namespace gpumem::test {

/// A gRPC connection of its own to the broker in `runtime_folder`.
std::shared_ptr<grpc::Channel> connect_to_api(const std::filesystem::path& runtime_folder);

/// A growth of one slice.
v1::GrowRequest grow_request(std::uint64_t slice, std::uint64_t bytes, std::uint64_t wait_ms = 0);

/// The Broker service, called with any token and any figures.
class RawCalls {
 public:
  /// No token: the calls carry none.
  RawCalls(const std::filesystem::path& runtime_folder, std::optional<std::string> token);

  grpc::Status open_slice(const std::string& device, std::uint64_t limit, v1::OpenSliceResponse* response,
                          const std::string& label = "raw");
  grpc::Status grow(std::uint64_t slice, std::uint64_t bytes, std::uint64_t wait_ms,
                    v1::GrowResponse* response, v1::Denial* denial = nullptr);
  grpc::Status give_back(std::uint64_t slice, const std::vector<std::uint64_t>& leases);
  grpc::Status close_slice(std::uint64_t slice);
  grpc::Status ping();

 private:
  void prepare(grpc::ClientContext& context) const;

  std::optional<std::string> token_;
  std::unique_ptr<v1::Broker::Stub> stub_;
};

/// A lane that has greeted, and calls with its token.
struct RawSession {
  explicit RawSession(const std::filesystem::path& runtime_folder, const std::string& label = "raw");

  /// Opens a slice of the first device; its number.
  std::uint64_t open_slice(std::uint64_t limit = 0);
  /// Grows and receives the offers, without accepting them.
  v1::GrowResponse grow(std::uint64_t slice, std::uint64_t bytes);

  RawLane lane;
  v1::Welcome welcome;
  RawCalls calls;
};

}  // namespace gpumem::test
