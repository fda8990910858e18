"""An application's day: bulk writes, relations, aggregates, transactions, errors, and the admin's pages."""
import datetime
import decimal

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand
from django.db import IntegrityError, connection, models, transaction
from django.db.models import Avg, Count, Exists, F, OuterRef, Prefetch, Q, Subquery, Sum, Window
from django.db.models.functions import RowNumber, TruncMonth
from django.test import Client

from library.models import Author, Book, Subject


def refused(work, what):
    try:
        with transaction.atomic():
            work()
    except IntegrityError:
        return
    raise AssertionError(what)


class Command(BaseCommand):
    def handle(self, **_):
        self.write()
        self.ask()
        self.transactions()
        self.admin()
        print("django: migrations both ways, inspectdb, queries, transactions, admin")

    def write(self):
        Author.objects.bulk_create([Author(name=f"Author {n}", notes={"n": n, "likes": ["tea"]}) for n in range(20)])
        subjects = [Subject.objects.create(name=f"subject-{n}") for n in range(3)]
        authors = list(Author.objects.order_by("id"))
        books = Book.objects.bulk_create([
            Book(author=authors[n % 20], title=f"Book {n:03}", price=decimal.Decimal(n) / 2, pages=n + 1,
                 words=["one", f"w{n}"], length=datetime.timedelta(minutes=n)) for n in range(100)], batch_size=30)
        for n, book in enumerate(books):
            book.subjects.add(subjects[n % 3])
        books[1].after = books[0]
        books[1].scan = b"\x00\xff"
        books[1].save()
        Book.objects.filter(pages__gt=90).update(state=Book.State.LOST, price=F("price") + 1)
        Subject.objects.bulk_create([Subject(name="subject-0"), Subject(name="more")], ignore_conflicts=True)
        assert Subject.objects.count() == 4

    def ask(self):
        assert Book.objects.filter(state="lost").count() == 10
        books = Book.objects.select_related("author").prefetch_related("subjects").filter(
            Q(author__name__iexact="AUTHOR 3") | Q(title__endswith="007"))
        assert [book.title for book in books] == ["Book 003", "Book 007", "Book 023", "Book 043", "Book 063", "Book 083"]
        author = Author.objects.annotate(many=Count("books"), total=Sum("books__price")).order_by("-total", "id").first()
        assert (author.name, author.many, author.total) == ("Author 19", 5, decimal.Decimal("148.50")), vars(author)
        assert Author.objects.filter(notes__n=7).get().name == "Author 7"
        assert Author.objects.filter(notes__likes__contains=["tea"]).count() == 20
        assert Book.objects.filter(words__contains=["w5"]).get().title == "Book 005"
        newest = Book.objects.filter(author=OuterRef("pk")).order_by("-title").values("title")[:1]
        assert Author.objects.annotate(last=Subquery(newest)).get(name="Author 0").last == "Book 080"
        assert Author.objects.filter(~Exists(Book.objects.filter(author=OuterRef("pk"), pages__gt=99))).count() == 19
        ranked = Book.objects.annotate(place=Window(RowNumber(), partition_by="author", order_by="-pages"))
        assert ranked.filter(place=1).count() == 20
        months = Book.objects.annotate(month=TruncMonth("printed")).values("month").annotate(mean=Avg("pages"))
        assert list(months.values_list("mean", flat=True).order_by())[0] > 0
        assert Book.objects.filter(length__gt=datetime.timedelta(minutes=97)).count() == 2
        assert bytes(Book.objects.get(title="Book 001").scan) == b"\x00\xff"
        assert Author.objects.prefetch_related(Prefetch("books", Book.objects.filter(state="in"))).count() == 20
        both = Book.objects.filter(pages__lt=3).values("title").union(Book.objects.filter(pages=50).values("title"))
        assert len(both) == 3
        assert Book.objects.dates("printed", "year").count() == 1
        assert list(Book.objects.filter(pages__lt=9).iterator(chunk_size=3))

    def transactions(self):
        refused(lambda: Author.objects.create(name="AUTHOR 1"), "the same name twice")
        refused(lambda: Book.objects.create(author_id=1, title="x", price=-1), "a price below nothing")
        first = Author.objects.order_by("id").first()
        refused(lambda: Book.objects.create(author=first, title="Book 000", price=1), "the same book twice")
        # Foreign keys are checked at the end of the transaction.
        with transaction.atomic():
            ghost = Book.objects.create(author_id=10**9, title="ghost", price=1)
            Book.objects.filter(pk=ghost.pk).update(author=first)
        refused(lambda: Book.objects.create(author_id=10**9, title="ghost 2", price=1), "a book without its author")
        with transaction.atomic():
            locked = Book.objects.select_for_update().get(title="Book 010")
            try:
                with transaction.atomic():
                    Book.objects.filter(pk=locked.pk).update(title="undone")
                    raise KeyError
            except KeyError:
                pass
            locked.refresh_from_db()
            assert locked.title == "Book 010"
        Author.objects.get(name="Author 5").delete()
        assert Book.objects.count() == 96
        made, new = Author.objects.get_or_create(name="Author 5")
        assert new and made.pk
        changed, new = Author.objects.update_or_create(name="Author 6", defaults={"born": datetime.date(1900, 2, 28)})
        assert not new and changed.born.year == 1900
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM library_titles")
            assert cursor.fetchone() == (96,)

    def admin(self):
        User.objects.create_superuser("root", "root@example.org", "secret")
        client = Client()
        assert client.login(username="root", password="secret")
        author, book = Author.objects.first(), Book.objects.first()
        for page in ["", "library/book/", "library/book/?q=Author+3&state__exact=in", "library/author/?q=9",
                     f"library/author/{author.pk}/change/", f"library/book/{book.pk}/change/",
                     f"library/book/{book.pk}/delete/", f"library/book/{book.pk}/history/", "auth/user/", "auth/user/add/"]:
            answer = client.get(f"/admin/{page}")
            assert answer.status_code == 200, (page, answer.status_code)
        answer = client.post(f"/admin/library/book/{book.pk}/delete/", {"post": "yes"})
        assert answer.status_code == 302 and not Book.objects.filter(pk=book.pk).exists()
        answer = client.post("/admin/auth/user/add/", {"username": "two", "usable_password": "true",
                                                       "password1": "a-long-1-password", "password2": "a-long-1-password"})
        assert answer.status_code == 302, answer.content
        assert models.QuerySet(User).count() == 2
