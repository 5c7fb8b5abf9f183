/*
 * What the shim uses of libfabric's binary interface, which its manual pages describe (fabric(7),
 * fi_getinfo(3), fi_endpoint(3), fi_cq(3), fi_rma(3), fi_atomic(3)). Only that: of a structure that
 * the library makes, what lies behind the last member in use is left out. A function pointer that
 * is not called is a `fab_unused`.
 *
 * libfabric keeps these layouts: what changes gets symbols of a new version, and the shim names the
 * versions that it wants. `abi_check.c` compares all of it with libfabric's header.
 */
#ifndef TERRACE_FABRIC_ABI_H
#define TERRACE_FABRIC_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#define FAB_RMA (UINT64_C(1) << 2)
#define FAB_ATOMIC (UINT64_C(1) << 4)
#define FAB_RECV (UINT64_C(1) << 10)
#define FAB_TRANSMIT (UINT64_C(1) << 11)
#define FAB_REMOTE_READ (UINT64_C(1) << 12)
#define FAB_REMOTE_WRITE (UINT64_C(1) << 13)
#define FAB_COMPLETION (UINT64_C(1) << 24)
#define FAB_DELIVERY_COMPLETE (UINT64_C(1) << 28)
#define FAB_COMMIT_COMPLETE (UINT64_C(1) << 30)
#define FAB_RMA_PMEM (UINT64_C(1) << 49)
#define FAB_SOURCE (UINT64_C(1) << 57)

enum {
	FAB_MR_VIRT_ADDR = 1 << 4,
	FAB_MR_ALLOCATED = 1 << 5,
	FAB_MR_PROV_KEY = 1 << 6,
	FAB_EP_RDM = 3,
	FAB_THREAD_SAFE = 1,
	FAB_PROGRESS_AUTO = 1,
	FAB_PROGRESS_MANUAL = 2,
	FAB_AV_TABLE = 2,
	FAB_CQ_FORMAT_CONTEXT = 1,
	FAB_WAIT_FD = 3,
	FAB_UINT64 = 7,
	FAB_SUM = 2,
	FAB_CSWAP = 12,
	FAB_GETWAIT = 5,
	FAB_ENABLE = 6,
	FAB_EOTHER = 256,
	FAB_EAVAIL = 259,
};

/* The number of version 1.`minor`. */
#define FAB_VERSION_1(minor) (UINT32_C(1) << 16 | (minor))

typedef void (*fab_unused)(void);

struct fab_av;
struct fab_av_attr;
struct fab_cq;
struct fab_cq_attr;
struct fab_domain;
struct fab_ep;
struct fab_mr;

/* An object: each begins with this. */
struct fab_id {
	size_t class;
	void *context;
	const struct fab_ops *ops;
};

struct fab_ops {
	size_t size;
	int (*close)(struct fab_id *id);
	int (*bind)(struct fab_id *id, struct fab_id *to, uint64_t flags);
	int (*control)(struct fab_id *id, int command, void *argument);
};

/* What is asked of a provider, or what it has. */
struct fab_info {
	struct fab_info *next;
	uint64_t caps;
	uint64_t mode;
	uint32_t address_format;
	size_t source_length;
	size_t destination_length;
	void *source;
	void *destination;
	void *handle;
	void *transmit;
	void *receive;
	struct fab_ep_attr *ep;
	struct fab_domain_attr *domain;
	struct fab_fabric_attr *fabric;
};

struct fab_ep_attr {
	int type;
};

struct fab_domain_attr {
	void *domain;
	char *name;
	int threading;
	int control_progress;
	int data_progress;
	int resources;
	int av_type;
	int mr_mode;
};

struct fab_fabric_attr {
	void *fabric;
	char *name;
	char *provider;
};

struct fab_fabric {
	struct fab_id id;
	const struct fab_fabric_ops *ops;
};

struct fab_fabric_ops {
	size_t size;
	int (*domain)(struct fab_fabric *fabric, struct fab_info *info, struct fab_domain **domain,
		      void *context);
	fab_unused passive_ep;
	fab_unused eq_open;
	fab_unused wait_open;
	int (*trywait)(struct fab_fabric *fabric, struct fab_id **ids, int count);
};

struct fab_domain {
	struct fab_id id;
	const struct fab_domain_ops *ops;
	const struct fab_mr_ops *mr;
};

struct fab_domain_ops {
	size_t size;
	int (*av_open)(struct fab_domain *domain, struct fab_av_attr *attr, struct fab_av **av,
		       void *context);
	int (*cq_open)(struct fab_domain *domain, struct fab_cq_attr *attr, struct fab_cq **cq,
		       void *context);
	int (*endpoint)(struct fab_domain *domain, struct fab_info *info, struct fab_ep **ep,
			void *context);
};

struct fab_mr_ops {
	size_t size;
	int (*reg)(struct fab_id *domain, const void *memory, size_t length, uint64_t access,
		   uint64_t offset, uint64_t wanted_key, uint64_t flags, struct fab_mr **mr,
		   void *context);
};

struct fab_mr {
	struct fab_id id;
	void *descriptor;
	uint64_t key;
};

/* A list of peers. */
struct fab_av {
	struct fab_id id;
	const struct fab_av_ops *ops;
};

struct fab_av_attr {
	int type;
	int rx_ctx_bits;
	size_t count;
	size_t ep_per_node;
	const char *name;
	void *map_address;
	uint64_t flags;
};

struct fab_av_ops {
	size_t size;
	int (*insert)(struct fab_av *av, const void *address, size_t count, uint64_t *peer,
		      uint64_t flags, void *context);
};

/* A completion queue. */
struct fab_cq {
	struct fab_id id;
	const struct fab_cq_ops *ops;
};

struct fab_cq_attr {
	size_t size;
	uint64_t flags;
	int format;
	int wait_object;
	int signaling_vector;
	int wait_condition;
	void *wait_set;
};

struct fab_cq_entry {
	void *context;
};

struct fab_cq_error {
	void *context;
	uint64_t flags;
	size_t length;
	void *buffer;
	uint64_t data;
	uint64_t tag;
	size_t overflow;
	int error;
	int provider_error;
	void *error_data;
	size_t error_data_size;
	/* Later versions have more members. */
	uint64_t room[8];
};

struct fab_cq_ops {
	size_t size;
	ssize_t (*read)(struct fab_cq *cq, void *entries, size_t count);
	fab_unused readfrom;
	ssize_t (*readerr)(struct fab_cq *cq, struct fab_cq_error *error, uint64_t flags);
};

struct fab_ep {
	struct fab_id id;
	const void *ops;
	const struct fab_cm_ops *cm;
	const void *messages;
	const struct fab_rma_ops *rma;
	const void *tagged;
	const struct fab_atomic_ops *atomic;
};

struct fab_cm_ops {
	size_t size;
	fab_unused setname;
	int (*getname)(struct fab_id *ep, void *address, size_t *length);
};

struct fab_rma_iov {
	uint64_t address;
	size_t length;
	uint64_t key;
};

struct fab_rma_message {
	const struct iovec *local;
	void **descriptors;
	size_t local_count;
	uint64_t peer;
	const struct fab_rma_iov *remote;
	size_t remote_count;
	void *context;
	uint64_t data;
};

struct fab_rma_ops {
	size_t size;
	ssize_t (*read)(struct fab_ep *ep, void *into, size_t length, void *descriptor, uint64_t peer,
			uint64_t address, uint64_t key, void *context);
	fab_unused readv;
	fab_unused readmsg;
	fab_unused write;
	fab_unused writev;
	ssize_t (*writemsg)(struct fab_ep *ep, const struct fab_rma_message *message, uint64_t flags);
};

struct fab_atomic_ops {
	size_t size;
	fab_unused write;
	fab_unused writev;
	fab_unused writemsg;
	fab_unused inject;
	ssize_t (*readwrite)(struct fab_ep *ep, const void *operand, size_t count, void *descriptor,
			     void *result, void *result_descriptor, uint64_t peer, uint64_t address,
			     uint64_t key, int type, int operation, void *context);
	fab_unused readwritev;
	fab_unused readwritemsg;
	ssize_t (*compwrite)(struct fab_ep *ep, const void *operand, size_t count, void *descriptor,
			     const void *comparand, void *comparand_descriptor, void *result,
			     void *result_descriptor, uint64_t peer, uint64_t address, uint64_t key,
			     int type, int operation, void *context);
};

#endif
