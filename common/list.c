#include "common/list.h"

void list_init(struct list *head)
{
    head->prev = head;
    head->next = head;
}

void list_insert_before(struct list *where, struct list *link)
{
    link->prev = where->prev;
    link->next = where;
    where->prev->next = link;
    where->prev = link;
}

void list_push(struct list *head, struct list *link)
{
    list_insert_before(head, link);
}

void list_push_first(struct list *head, struct list *link)
{
    list_insert_before(head->next, link);
}

void list_remove(struct list *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
    list_init(link);
}

struct list *list_pop(struct list *head)
{
    struct list *link = list_first(head);

    if (link) {
        list_remove(link);
    }
    return link;
}

bool list_is_empty(const struct list *head)
{
    return head->next == head;
}

struct list *list_first(const struct list *head)
{
    return list_is_empty(head) ? NULL : head->next;
}

size_t list_count(const struct list *head)
{
    size_t n = 0;

    for (const struct list *link = head->next; link != head; link = link->next) {
        n++;
    }
    return n;
}
