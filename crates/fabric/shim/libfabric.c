/*
 * libfabric's calls as functions with symbols: its headers define most of them inline. Names and
 * order of arguments are libfabric's, behind the prefix `terrace_`; a pointer to any of its objects
 * is a `struct fid *`. What Terrace always asks for is filled in here, so that Rust knows no
 * layout of a structure. Calls return 0 or a count, or libfabric's negative error.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

/* An endpoint has no more than this many completions that nobody read. */
enum { COMPLETIONS = 1024 };

/*
 * By default the provider for TCP takes 70 MB for an endpoint: 4,096 buffers of 16 KiB for messages.
 * Here only atomics are messages, of less than 512 bytes. The library reads its settings once, and
 * other threads may read the environment later, so they are made before main().
 */
__attribute__((constructor)) static void set_small_buffers(void)
{
	setenv("FI_OFI_RXM_BUFFER_SIZE", "512", 0);
	setenv("FI_OFI_RXM_MSG_RX_SIZE", "128", 0);
}

/*
 * Debian's libfabric loads libinfinipath, which takes over these signals before main() and ends the
 * process with code 1: SIGTERM would stop no program cleanly. Handlers of others remain.
 */
__attribute__((constructor)) static void give_signals_back(void)
{
	static const int signals[] = {SIGINT, SIGILL, SIGABRT, SIGBUS, SIGSEGV, SIGTERM};
	for (size_t nth = 0; nth < sizeof signals / sizeof *signals; nth++) {
		struct sigaction now;
		Dl_info of;
		if (sigaction(signals[nth], NULL, &now) != 0)
			continue;
		if (now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN)
			continue;
		/* Either member has the address: they share their place. */
		if (dladdr((void *)(uintptr_t)now.sa_handler, &of) != 0 && of.dli_fname != NULL &&
		    strstr(of.dli_fname, "libinfinipath") != NULL)
			signal(signals[nth], SIG_DFL);
	}
}

/* Without automatic progress only calls of the caller move bytes. */
int terrace_fi_getinfo(const char *provider, const char *node, int automatic, int persistent,
		       struct fi_info **info)
{
	struct fi_info *hints = fi_allocinfo();
	int result = -FI_ENOMEM;

	if (!hints)
		return result;
	hints->caps = FI_RMA | FI_ATOMIC | (persistent ? FI_RMA_PMEM : 0);
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->domain_attr->threading = FI_THREAD_SAFE;
	hints->domain_attr->control_progress = automatic ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL;
	hints->domain_attr->data_progress = hints->domain_attr->control_progress;
	hints->fabric_attr->prov_name = strdup(provider);
	if (hints->fabric_attr->prov_name)
		result = fi_getinfo(FI_VERSION(1, 17), node, "0", FI_SOURCE, hints, info);
	fi_freeinfo(hints);
	return result;
}

int terrace_fi_fabric(struct fi_info *info, struct fid_fabric **fabric)
{
	return fi_fabric(info->fabric_attr, fabric, NULL);
}

int terrace_fi_domain(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain)
{
	return fi_domain(fabric, info, domain, NULL);
}

int terrace_fi_endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep)
{
	return fi_endpoint(domain, info, ep, NULL);
}

int terrace_fi_av_open(struct fid_domain *domain, struct fid_av **av)
{
	struct fi_av_attr attr = { .type = FI_AV_TABLE, .count = 1 };

	return fi_av_open(domain, &attr, av, NULL);
}

int terrace_fi_cq_open(struct fid_domain *domain, struct fid_cq **cq)
{
	struct fi_cq_attr attr = {
		.size = COMPLETIONS,
		.format = FI_CQ_FORMAT_CONTEXT,
		.wait_obj = FI_WAIT_FD,
	};

	return fi_cq_open(domain, &attr, cq, NULL);
}

int terrace_fi_enable(struct fid_ep *ep, struct fid_av *av, struct fid_cq *cq)
{
	int result = fi_ep_bind(ep, &av->fid, 0);

	if (!result)
		result = fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV);
	return result ? result : fi_enable(ep);
}

int terrace_fi_getname(struct fid_ep *ep, void *address, size_t *length)
{
	return fi_getname(&ep->fid, address, length);
}

int terrace_fi_av_insert(struct fid_av *av, const void *address, fi_addr_t *peer)
{
	int result = fi_av_insert(av, address, 1, peer, 0, NULL);

	return result == 1 ? 0 : result < 0 ? result : -FI_EINVAL;
}

/* `base` is what the provider adds to an offset: the address, where it does not count from 0. */
int terrace_fi_mr_reg(struct fid_domain *domain, struct fi_info *info, void *memory, size_t length,
		      int read, int write, uint64_t wanted_key, struct fid_mr **mr, uint64_t *key,
		      uint64_t *base)
{
	uint64_t access = (read ? FI_REMOTE_READ : 0) | (write ? FI_REMOTE_WRITE : 0);
	int result = fi_mr_reg(domain, memory, length, access, 0, wanted_key, 0, mr, NULL);

	if (result)
		return result;
	*key = fi_mr_key(*mr);
	*base = info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uintptr_t)memory : 0;
	return 0;
}

ssize_t terrace_fi_read(struct fid_ep *ep, void *into, size_t length, fi_addr_t peer,
			uint64_t address, uint64_t key, void *context)
{
	return fi_read(ep, into, length, NULL, peer, address, key, context);
}

/* Without FI_DELIVERY_COMPLETE a write that the target refuses would end well. */
ssize_t terrace_fi_write(struct fid_ep *ep, const void *bytes, size_t length, fi_addr_t peer,
			 uint64_t address, uint64_t key, int persistent, void *context)
{
	struct iovec local = { .iov_base = (void *)bytes, .iov_len = length };
	struct fi_rma_iov remote = { .addr = address, .len = length, .key = key };
	struct fi_msg_rma message = {
		.msg_iov = &local,
		.iov_count = 1,
		.addr = peer,
		.rma_iov = &remote,
		.rma_iov_count = 1,
		.context = context,
	};
	uint64_t until = persistent ? FI_COMMIT_COMPLETE : FI_DELIVERY_COMPLETE;

	return fi_writemsg(ep, &message, FI_COMPLETION | until);
}

/* `words` are: what to store, the word to compare with, where the word before goes. */
ssize_t terrace_fi_compare_atomic(struct fid_ep *ep, uint64_t words[3], fi_addr_t peer,
				  uint64_t address, uint64_t key, void *context)
{
	return fi_compare_atomic(ep, &words[0], 1, NULL, &words[1], NULL, &words[2], NULL, peer,
				 address, key, FI_UINT64, FI_CSWAP, context);
}

ssize_t terrace_fi_fetch_atomic(struct fid_ep *ep, uint64_t words[3], fi_addr_t peer,
				uint64_t address, uint64_t key, void *context)
{
	return fi_fetch_atomic(ep, &words[0], 1, NULL, &words[2], NULL, peer, address, key,
			       FI_UINT64, FI_SUM, context);
}

/* 1 for a completion, whose error is 0 or positive; 0 for none. */
ssize_t terrace_fi_cq_read(struct fid_cq *cq, void **context, int *error)
{
	struct fi_cq_entry entry;
	struct fi_cq_err_entry failed = { 0 };
	ssize_t result = fi_cq_read(cq, &entry, 1);

	*error = 0;
	if (result == 1)
		*context = entry.op_context;
	if (result == -FI_EAVAIL) {
		result = fi_cq_readerr(cq, &failed, 0);
		*context = failed.op_context;
		*error = failed.err > 0 ? failed.err : FI_EOTHER;
	}
	return result == -FI_EAGAIN ? 0 : result;
}

/* Returns when there may be a completion, or work for a call that makes progress. */
int terrace_fi_wait(struct fid_fabric *fabric, struct fid_cq *cq, int timeout_ms)
{
	struct pollfd entry = { .events = POLLIN };
	struct fid *fid = &cq->fid;
	int result = fi_control(fid, FI_GETWAIT, &entry.fd);

	if (result)
		return result;
	result = fi_trywait(fabric, &fid, 1);
	if (result)
		return result == -FI_EAGAIN ? 0 : result;
	return poll(&entry, 1, timeout_ms) < 0 && errno != EINTR ? -errno : 0;
}

int terrace_fi_close(struct fid *fid)
{
	return fi_close(fid);
}
