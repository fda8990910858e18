import uuid

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Lower


class Author(models.Model):
    name = models.CharField(max_length=80)
    born = models.DateField(null=True)
    notes = models.JSONField(default=dict)

    class Meta:
        constraints = [models.UniqueConstraint(Lower("name"), name="author_name")]

    def __str__(self):
        return self.name


class Subject(models.Model):
    name = models.SlugField(unique=True)


class Book(models.Model):
    class State(models.TextChoices):
        IN = "in"
        OUT = "out"
        LOST = "lost"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    author = models.ForeignKey(Author, on_delete=models.CASCADE, related_name="books")
    title = models.TextField()
    printed = models.DateTimeField(auto_now_add=True)
    price = models.DecimalField(max_digits=8, decimal_places=2)
    state = models.CharField(max_length=4, choices=State, default=State.IN)
    pages = models.PositiveIntegerField(default=1)
    words = ArrayField(models.TextField(), default=list)
    scan = models.BinaryField(null=True)
    length = models.DurationField(null=True)
    subjects = models.ManyToManyField(Subject)
    after = models.OneToOneField("self", null=True, on_delete=models.SET_NULL)

    class Meta:
        ordering = ["title"]
        unique_together = [("author", "title")]
        indexes = [models.Index(fields=["author", "-printed"], name="book_newest"),
                   models.Index(fields=["title"], name="book_lost", condition=models.Q(state="lost"))]
        constraints = [models.CheckConstraint(condition=models.Q(price__gte=0), name="book_price"),
                       models.UniqueConstraint(fields=["scan"], condition=models.Q(state="out"), name="book_out")]
