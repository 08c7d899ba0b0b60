/* Intrusive doubly linked list: the head and the links have one type.
 *
 *     struct job { struct list link; ... };
 *     struct list jobs;
 *     list_init(&jobs);
 *     list_push(&jobs, &job->link);
 *     list_each(&jobs, link) {
 *         struct job *job = list_item(link, struct job, link);
 *         ...                       (link itself may be removed and freed here)
 *     }
 */
#ifndef GEMS_COMMON_LIST_H
#define GEMS_COMMON_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *prev, *next;
};

void list_init(struct list *head); /* also makes a link that is in no list */
void list_push(struct list *head, struct list *link); /* at the end */
void list_push_first(struct list *head, struct list *link);
void list_insert_before(struct list *where, struct list *link);
/* Takes a link out; harmless for one that list_init made and nobody put in. */
void list_remove(struct list *link);
/* Takes the first one out; NULL if empty. */
struct list *list_pop(struct list *head);
bool list_is_empty(const struct list *head);
struct list *list_first(const struct list *head); /* borrowed; NULL if empty */
size_t list_count(const struct list *head);       /* walks the list */

/* The struct around a link. */
#define list_item(link, type, member) ((type *)(void *)((char *)(link)-offsetof(type, member)))

/* Loops over the links; the current one may be removed. */
#define list_each(head, link)                                                                      \
    for (struct list *link = (head)->next, *link##_next = link->next; link != (head);              \
         link = link##_next, link##_next = link->next)

#endif
