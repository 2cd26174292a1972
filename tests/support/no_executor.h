#pragma once
#include "daemon/core/broker/executor.h"

namespace gpumem::test {

/// An executor that nobody is behind: it knows no session, and drops what it is given. Tests override what
/// they are about.
struct NoExecutor : core::Executor {
  void post(Work) override {}
  void after(std::function<void()>) override {}
  Result<void> write_down() override { return {}; }
  std::optional<core::Caller> caller_of(int) const override { return {}; }
  Result<SessionId> open_session(int, std::string, core::CommandJobId,
                                 std::shared_ptr<core::SessionHolder>) override {
    return Error{Code::kUnavailable, "nobody is behind"};
  }
  void end_session(SessionId) override {}
  RequestId grow(SessionId, const core::Grow&, GrowAnswer) override { return {}; }
  RequestId reserve_for_job(SessionId, const core::ReserveForJob&, GrowAnswer) override { return {}; }
  RequestId announce_context(SessionId, const core::AnnounceContext&, GrowAnswer) override { return {}; }
  RequestId map_region(SessionId, const core::MapRegion&, MapAnswer) override { return {}; }
  void cancel(RequestId) override {}
  std::optional<core::HandleBytes> fabric_handle(ExtentId) const override { return {}; }
  std::optional<ClientFigures> client_figures(SessionId, core::DeviceIndex, Bytes) const override {
    return {};
  }
  void watch(std::shared_ptr<core::EventWatcher>, std::optional<core::WallTime>) override {}
  void unwatch(const core::EventWatcher&) override {}
};

}  // namespace gpumem::test
