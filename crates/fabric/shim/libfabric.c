/*
 * libfabric's calls as functions with symbols: its headers define most of them inline. Names and
 * order of arguments are libfabric's, behind the prefix `terrace_`; a pointer to any of its objects
 * is a `struct fab_id *`. What Terrace always asks for is filled in here, so that Rust knows no
 * layout of a structure. Calls return 0 or a count, or libfabric's negative error.
 *
 * The library is opened when it is wanted, since to load it takes 200 ms and most programs open no
 * fabric. Every call but `terrace_fi_load` needs it open.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "abi.h"

/* An endpoint has no more than this many completions that nobody read. */
enum { COMPLETIONS = 1024 };

/*
 * Settings of the library and of what it brings. It reads them when it is opened; other threads may
 * read the environment then, so they are made before main().
 */
__attribute__((constructor)) static void make_settings(void)
{
	/*
	 * By default the provider for TCP takes 70 MB for an endpoint: 4,096 buffers of 16 KiB for
	 * messages. Here only atomics are messages, of less than 512 bytes.
	 */
	setenv("FI_OFI_RXM_BUFFER_SIZE", "512", 0);
	setenv("FI_OFI_RXM_MSG_RX_SIZE", "128", 0);
	/*
	 * Debian's libfabric loads libinfinipath, which takes over SIGINT, SIGTERM and others, and ends
	 * the process with code 1.
	 */
	setenv("IPATH_NO_BACKTRACE", "1", 0);
}

static struct {
	uint32_t (*version)(void);
	const char *(*strerror)(int error);
	int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
		       const struct fab_info *hints, struct fab_info **info);
	void (*freeinfo)(struct fab_info *info);
	struct fab_info *(*dupinfo)(const struct fab_info *info);
	int (*fabric)(struct fab_fabric_attr *attr, struct fab_fabric **fabric, void *context);
} library;

/* A symbol of the version whose structures `abi.h` declares: later ones may have others. */
static void *symbol(void *handle, const char *name, const char *version)
{
#ifdef __GLIBC__
	return dlvsym(handle, name, version);
#else
	(void)version;
	return dlsym(handle, name);
#endif
}

/*
 * Opens the library. NULL, or why it cannot be used. Not for two threads at once. Once it is open it
 * stays so.
 */
const char *terrace_fi_load(uint32_t *version)
{
	void *handle = dlopen("libfabric.so.1", RTLD_LAZY | RTLD_LOCAL);

	*version = 0;
	if (!handle)
		return dlerror();
	*(void **)&library.version = symbol(handle, "fi_version", "FABRIC_1.0");
	*(void **)&library.strerror = symbol(handle, "fi_strerror", "FABRIC_1.0");
	*(void **)&library.getinfo = symbol(handle, "fi_getinfo", "FABRIC_1.3");
	*(void **)&library.freeinfo = symbol(handle, "fi_freeinfo", "FABRIC_1.3");
	*(void **)&library.dupinfo = symbol(handle, "fi_dupinfo", "FABRIC_1.3");
	*(void **)&library.fabric = symbol(handle, "fi_fabric", "FABRIC_1.1");
	if (library.version)
		*version = library.version();
	if (!library.version || !library.strerror || !library.getinfo || !library.freeinfo ||
	    !library.dupinfo || !library.fabric)
		return "it has not all functions of libfabric 1.17";
	return *version < FAB_VERSION_1(17) ? "it is older than 1.17" : NULL;
}

const char *terrace_fi_strerror(int error)
{
	return library.strerror(error);
}

void terrace_fi_freeinfo(struct fab_info *info)
{
	library.freeinfo(info);
}

/* Without automatic progress only calls of the caller move bytes. */
int terrace_fi_getinfo(const char *provider, const char *node, int automatic, int persistent,
		       struct fab_info **info)
{
	struct fab_info *hints = library.dupinfo(NULL);
	int result = -ENOMEM;

	if (!hints)
		return result;
	hints->caps = FAB_RMA | FAB_ATOMIC | (persistent ? FAB_RMA_PMEM : 0);
	hints->ep->type = FAB_EP_RDM;
	hints->domain->mr_mode = FAB_MR_VIRT_ADDR | FAB_MR_ALLOCATED | FAB_MR_PROV_KEY;
	hints->domain->threading = FAB_THREAD_SAFE;
	hints->domain->control_progress = automatic ? FAB_PROGRESS_AUTO : FAB_PROGRESS_MANUAL;
	hints->domain->data_progress = hints->domain->control_progress;
	hints->fabric->provider = strdup(provider);
	if (hints->fabric->provider)
		result = library.getinfo(FAB_VERSION_1(17), node, "0", FAB_SOURCE, hints, info);
	library.freeinfo(hints);
	return result;
}

/* As `info`, but listens on this port. */
int terrace_fi_at_port(const struct fab_info *info, uint16_t port, struct fab_info **at_port)
{
	struct fab_info *copy = library.dupinfo(info);
	struct sockaddr *source = copy ? copy->source : NULL;

	*at_port = copy;
	if (!copy)
		return -ENOMEM;
	if (source && source->sa_family == AF_INET && copy->source_length >= sizeof(struct sockaddr_in)) {
		((struct sockaddr_in *)source)->sin_port = htons(port);
		return 0;
	}
	if (source && source->sa_family == AF_INET6 &&
	    copy->source_length >= sizeof(struct sockaddr_in6)) {
		((struct sockaddr_in6 *)source)->sin6_port = htons(port);
		return 0;
	}
	library.freeinfo(copy);
	*at_port = NULL;
	return -EAFNOSUPPORT;
}

int terrace_fi_fabric(struct fab_info *info, struct fab_fabric **fabric)
{
	return library.fabric(info->fabric, fabric, NULL);
}

int terrace_fi_domain(struct fab_fabric *fabric, struct fab_info *info, struct fab_domain **domain)
{
	return fabric->ops->domain(fabric, info, domain, NULL);
}

int terrace_fi_endpoint(struct fab_domain *domain, struct fab_info *info, struct fab_ep **ep)
{
	return domain->ops->endpoint(domain, info, ep, NULL);
}

int terrace_fi_av_open(struct fab_domain *domain, struct fab_av **av)
{
	struct fab_av_attr attr = { .type = FAB_AV_TABLE, .count = 1 };

	return domain->ops->av_open(domain, &attr, av, NULL);
}

int terrace_fi_cq_open(struct fab_domain *domain, struct fab_cq **cq)
{
	struct fab_cq_attr attr = {
		.size = COMPLETIONS,
		.format = FAB_CQ_FORMAT_CONTEXT,
		.wait_object = FAB_WAIT_FD,
	};

	return domain->ops->cq_open(domain, &attr, cq, NULL);
}

int terrace_fi_enable(struct fab_ep *ep, struct fab_av *av, struct fab_cq *cq)
{
	int result = ep->id.ops->bind(&ep->id, &av->id, 0);

	if (!result)
		result = ep->id.ops->bind(&ep->id, &cq->id, FAB_TRANSMIT | FAB_RECV);
	return result ? result : ep->id.ops->control(&ep->id, FAB_ENABLE, NULL);
}

int terrace_fi_getname(struct fab_ep *ep, void *address, size_t *length)
{
	return ep->cm->getname(&ep->id, address, length);
}

int terrace_fi_av_insert(struct fab_av *av, const void *address, uint64_t *peer)
{
	int result = av->ops->insert(av, address, 1, peer, 0, NULL);

	return result == 1 ? 0 : result < 0 ? result : -EINVAL;
}

/* `base` is what the provider adds to an offset: the address, where it does not count from 0. */
int terrace_fi_mr_reg(struct fab_domain *domain, struct fab_info *info, void *memory, size_t length,
		      int read, int write, uint64_t wanted_key, struct fab_mr **mr, uint64_t *key,
		      uint64_t *base)
{
	uint64_t access = (read ? FAB_REMOTE_READ : 0) | (write ? FAB_REMOTE_WRITE : 0);
	int result = domain->mr->reg(&domain->id, memory, length, access, 0, wanted_key, 0, mr, NULL);

	if (result)
		return result;
	*key = (*mr)->key;
	*base = info->domain->mr_mode & FAB_MR_VIRT_ADDR ? (uintptr_t)memory : 0;
	return 0;
}

ssize_t terrace_fi_read(struct fab_ep *ep, void *into, size_t length, uint64_t peer,
			uint64_t address, uint64_t key, void *context)
{
	return ep->rma->read(ep, into, length, NULL, peer, address, key, context);
}

/* Without FAB_DELIVERY_COMPLETE a write that the target refuses would end well. */
ssize_t terrace_fi_write(struct fab_ep *ep, const void *bytes, size_t length, uint64_t peer,
			 uint64_t address, uint64_t key, int persistent, void *context)
{
	struct iovec local = { .iov_base = (void *)bytes, .iov_len = length };
	struct fab_rma_iov remote = { .address = address, .length = length, .key = key };
	struct fab_rma_message message = {
		.local = &local,
		.local_count = 1,
		.peer = peer,
		.remote = &remote,
		.remote_count = 1,
		.context = context,
	};
	uint64_t until = persistent ? FAB_COMMIT_COMPLETE : FAB_DELIVERY_COMPLETE;

	return ep->rma->writemsg(ep, &message, FAB_COMPLETION | until);
}

/* `words` are: what to store, the word to compare with, where the word before goes. */
ssize_t terrace_fi_compare_atomic(struct fab_ep *ep, uint64_t words[3], uint64_t peer,
				  uint64_t address, uint64_t key, void *context)
{
	return ep->atomic->compwrite(ep, &words[0], 1, NULL, &words[1], NULL, &words[2], NULL,
				     peer, address, key, FAB_UINT64, FAB_CSWAP, context);
}

ssize_t terrace_fi_fetch_atomic(struct fab_ep *ep, uint64_t words[3], uint64_t peer,
				uint64_t address, uint64_t key, void *context)
{
	return ep->atomic->readwrite(ep, &words[0], 1, NULL, &words[2], NULL, peer, address, key,
				     FAB_UINT64, FAB_SUM, context);
}

/* 1 for a completion, whose error is 0 or positive; 0 for none. */
ssize_t terrace_fi_cq_read(struct fab_cq *cq, void **context, int *error)
{
	struct fab_cq_entry entry;
	struct fab_cq_error failed = { 0 };
	ssize_t result = cq->ops->read(cq, &entry, 1);

	*error = 0;
	if (result == 1)
		*context = entry.context;
	if (result == -FAB_EAVAIL) {
		result = cq->ops->readerr(cq, &failed, 0);
		*context = failed.context;
		*error = failed.error > 0 ? failed.error : FAB_EOTHER;
	}
	return result == -EAGAIN ? 0 : result;
}

/* Returns when there may be a completion, or work for a call that makes progress. */
int terrace_fi_wait(struct fab_fabric *fabric, struct fab_cq *cq, int timeout_ms)
{
	struct pollfd entry = { .events = POLLIN };
	struct fab_id *id = &cq->id;
	int result = id->ops->control(id, FAB_GETWAIT, &entry.fd);

	if (result)
		return result;
	result = fabric->ops->trywait(fabric, &id, 1);
	if (result)
		return result == -EAGAIN ? 0 : result;
	return poll(&entry, 1, timeout_ms) < 0 && errno != EINTR ? -errno : 0;
}

int terrace_fi_close(struct fab_id *id)
{
	return id->ops->close(id);
}
