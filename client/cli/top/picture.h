#pragma once
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gpumem/v1/broker.pb.h"

namespace gpumem::cli::top {

/// The content of the latest sample, and a history of those before.
class Picture {
 public:
  using Clock = std::chrono::steady_clock;
  /// Samples that a history has at most: ten minutes.
  static constexpr std::size_t kMostHistory = 600;

  struct Session {
    v1::SessionInfo info;
    Clock::time_point
        changed;  ///< since then its figures are as they are; at the latest, when it was first seen
  };
  struct Asked {
    std::uint64_t bytes = 0;
    std::uint64_t within_ms = 0;  ///< the least of all devices
  };

  /// Takes a sample, its messages as one.
  void apply(const v1::Sample& sample, Clock::time_point now);

  bool is_empty() const { return latest_.number() == 0; }
  const std::string& time() const { return latest_.time(); }
  const google::protobuf::RepeatedPtrField<v1::DeviceSample>& devices() const { return latest_.devices(); }
  std::vector<std::string> device_uuids() const;
  const google::protobuf::RepeatedPtrField<v1::Denial>& waiting() const { return latest_.waiting(); }
  /// By name and device.
  const std::map<std::pair<std::string, std::string>, v1::TenantUsage>& tenants() const { return tenants_; }
  const std::map<std::uint64_t, v1::JobInfo>& jobs() const { return jobs_; }
  const std::map<std::uint64_t, Session>& sessions() const { return sessions_; }
  /// By session.
  const std::map<std::uint64_t, Asked>& asked() const { return asked_; }
  /// The part of the device that was lent, in percent, one of each sample, the latest last.
  const std::deque<unsigned>& history(const std::string& device) const;

 private:
  void forget_others(const v1::Sample& whole);
  void remember(const v1::Sample& sample);

  v1::Sample latest_;  ///< without the lists
  std::map<std::pair<std::string, std::string>, v1::TenantUsage> tenants_;
  std::map<std::uint64_t, v1::JobInfo> jobs_;
  std::map<std::uint64_t, Session> sessions_;
  std::map<std::uint64_t, Asked> asked_;
  std::map<std::string, std::deque<unsigned>> history_;
};

/// Bytes of the device that are on loan.
std::uint64_t lent_of(const v1::DeviceStatus& device);

}  // namespace gpumem::cli::top
